/* Draws the pictures of a page with uPlot, and finds tokens. Texts are only ever set as textContent. */
(() => {
  "use strict";

  const BASE = 1, ADDED = 2, RESERVED = 4, SPECIAL = 8; // bits of a token's kind, as packed.py has them
  const STEPS = 65533, ZERO = 65534;
  const MOST_HITS = 12;
  const PAPER_WIDTH = 680; // CSS pixels
  const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const NEAR = 12; // CSS pixels from the pointer

  // The look of each class of rows and kind of ids: a variable of page.css, and a mark.
  const LOOKS = {
    "in-use": ["--in-use", "dot"],
    "base": ["--in-use", "dot"],
    "rows": ["--in-use", "dot"],
    "unknown": ["--line", "dot"],
    "added": ["--added", "square"],
    "special": ["--special", "diamond"],
    "reserved": ["--reserved", "ring"],
    "hole": ["--hole", "frame"],
    "padding": ["--padding", "down"],
    "no-row": ["--odd", "cross"],
    "non-finite": ["--odd", "cross"],
    "zero": ["--odd", "plus"],
    "near-zero": ["--odd", "minus"],
    "identical": ["--odd", "equal"],
    "under-trained": ["--odd", "disc"],
    "outlier": ["--odd", "up"],
  };
  const KINDS = { special: SPECIAL, added: ADDED };
  const ODD = ["non-finite", "zero", "near-zero", "identical", "under-trained", "outlier"];
  // A row is drawn as the first of these that it is; what it is for comes before what is odd about it.
  const FIRST = ["padding", "hole", "reserved", ...ODD, "special", "added", "in-use"];
  const LANES = ["special", "added", "reserved", "hole", "padding", ...ODD];

  const number = (value) => value.toLocaleString("en-US");
  const short = (value) => Number(value.toPrecision(3)).toString();
  const spaced = (slug) => slug.replace(/-/g, " ");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function make(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function press(className, text, act) {
    const button = make("button", className, text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  // ---- data ----

  async function unpack(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const data = new Uint8Array(await new Response(stream).arrayBuffer());
    const end = data.indexOf(10);
    const header = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
    let at = end + 1;
    const columns = header.lengths.map((length) => data.subarray(at, (at += length)));
    return new Model(header, columns);
  }

  class Model {
    constructor(header, columns) {
      this.header = header;
      this.span = header.span;
      this.kinds = columns[0];
      this.texts = new TextDecoder().decode(columns[1]).split("\n");
      this.tables = header.tables.map((table, place) => new Table(this, table, columns.slice(2 + 2 * place)));
    }

    has(id) {
      return this.kinds[id] !== 0;
    }

    name(id) {
      return this.has(id) ? this.texts[id] : "(no token)";
    }

    /** What the id is, as the map has it. */
    kindsOf(id) {
      return this.lanes().filter((lane) => lane.has(id)).map((lane) => lane.slug);
    }

    lanes() {
      if (this.known) return this.known;
      const { kinds } = this;
      const { required, inputRows } = this.header;
      const rows = inputRows === null ? Infinity : inputRows;
      const lanes = required === null ? [["rows", (id) => id < rows]] : [
        ["base", (id) => (kinds[id] & BASE) !== 0],
        ["added", (id) => (kinds[id] & ADDED) !== 0],
        ["special", (id) => (kinds[id] & SPECIAL) !== 0],
        ["reserved", (id) => (kinds[id] & RESERVED) !== 0],
        [this.header.base ? "hole" : "unknown", (id) => kinds[id] === 0 && id < required],
        ["padding", (id) => id >= required],
        ["no-row", (id) => kinds[id] !== 0 && id >= rows],
      ];
      this.known = lanes.map(([slug, has]) => ({ slug, has, count: this.count(has) })).filter((lane) => lane.count);
      return this.known;
    }

    /** The first id from which on all are added, reserved, holes or padding. */
    tail() {
      let id = this.span;
      while (id > 0 && (this.kinds[id - 1] & (BASE | RESERVED)) !== BASE) id--;
      return id;
    }

    count(has) {
      let found = 0;
      for (let id = 0; id < this.span; id++) if (has(id)) found++;
      return found;
    }
  }

  /** The rows of one table: row n belongs to id first + n. */
  class Table {
    constructor(model, header, [classes, levels]) {
      this.model = model;
      this.header = header;
      this.first = header.first;
      this.rows = header.rows;
      this.classes = joined(classes);
      this.norms = decoded(joined(levels), header.low, header.high);
      this.bits = Object.fromEntries(Object.entries(model.header.classes).map(([bit, slug]) => [slug, Number(bit)]));
      const used = (row) => (this.classes[row] & this.bits["in-use"]) !== 0;
      this.used = this.classes.reduce((count, _, row) => count + used(row), 0);
      this.judged = this.norms.filter((norm, row) => norm > 0 && (!this.used || used(row))).sort();
      this.groups = Uint8Array.from({ length: this.rows }, (_, row) => this.group(row));
    }

    is(slug, row) {
      return slug in KINDS ? this.model.kinds[this.first + row] & KINDS[slug] : this.classes[row] & this.bits[slug];
    }

    group(row) {
      const found = FIRST.findIndex((slug) => this.is(slug, row));
      return found < 0 ? FIRST.length - 1 : found;
    }

    /** The rows of each class but those in use, all of them: a row may be in several. */
    marked() {
      return LANES.map((slug) => ({ slug, rows: this.being(slug) })).filter((lane) => lane.rows.length);
    }

    being(slug) {
      const rows = [];
      for (let row = 0; row < this.rows; row++) if (this.is(slug, row)) rows.push(row);
      return rows;
    }

    holds(id) {
      return id !== null && id >= this.first && id < this.first + this.rows;
    }

    words(id) {
      const value = this.classes[id - this.first];
      const slugs = Object.keys(this.bits).filter((slug) => value & this.bits[slug]);
      return slugs.map(spaced).join(", ") || "unknown";
    }

    describe(id) {
      const norm = this.norms[id - this.first];
      if (norm !== norm) return "not finite";
      return `norm ${short(norm)}, above ${Math.round(this.percentile(norm))} % of rows in use`;
    }

    percentile(norm) {
      return (100 * below(this.judged, norm)) / Math.max(1, this.judged.length);
    }
  }

  const joined = (planes) => {
    const count = planes.length / 2;
    return Uint16Array.from({ length: count }, (_, row) => (planes[row] << 8) | planes[count + row]);
  };

  function decoded(levels, low, high) {
    const step = (high - low) / STEPS;
    return Float64Array.from(levels, (level) =>
      level <= STEPS ? Math.exp(low + level * step) : level === ZERO ? 0 : NaN);
  }

  /** How many of the sorted values are smaller. */
  function below(sorted, value) {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // ---- an axis of norms: linear, or logarithmic where they span more ----

  class Norms {
    constructor(table) {
      const { norms, judged } = table;
      let low = Infinity, high = -Infinity, zero = false, odd = false;
      for (const norm of norms) {
        if (norm > 0) { low = Math.min(low, norm); high = Math.max(high, norm); }
        else if (norm === 0) zero = true;
        else odd = true;
      }
      if (low > high) low = high = 1;
      this.log = high / low > 12;
      const [first, last] = [this.to(low), this.to(high)];
      const width = last - first || Math.abs(last) * 0.2 || 1;
      this.zero = !zero ? null : this.log ? first - 0.08 * width : 0;
      this.odd = !odd ? null : last + 0.08 * width;
      const ends = [first, last, this.zero, this.odd].filter((end) => end !== null);
      const [start, stop] = [Math.min(...ends), Math.max(...ends)];
      this.all = [start - 0.04 * width, stop + 0.04 * width];
      const share = (part) => this.to(judged[Math.round(part * (judged.length - 1))]);
      this.bulk = judged.length > 9 ? widened(share(0.005), share(0.995)) : this.all;
      this.range = this.all;
    }

    get zoomable() {
      return this.bulk[1] - this.bulk[0] < 0.7 * (this.all[1] - this.all[0]);
    }

    to(norm) {
      return this.log ? Math.log10(norm) : norm;
    }

    from(place) {
      return this.log ? 10 ** place : place;
    }

    /** Where a row stands, zero and not finite ones at the edges. */
    place(norm) {
      return norm > 0 ? this.to(norm) : norm === 0 ? this.zero : this.odd;
    }

    splits(low, high, most) {
      const special = [this.zero, this.odd].filter((at) => at !== null && (at !== 0 || this.log) && at >= low && at <= high);
      const step = (high - low) / most;
      const clear = (at) => special.every((other) => Math.abs(at - other) > step / 2);
      const inside = (at) => at >= low && at <= high && clear(at) && (this.odd === null || at < this.odd);
      return [...special, ...this.ticks(low, high, most).filter(inside)].sort((a, b) => a - b);
    }

    ticks(low, high, most) {
      if (!this.log) return round(low, high, most);
      const span = high - low;
      if (span > most) return round(low, high, most).filter(Number.isInteger);
      const factors = span > most / 2 ? [1] : span > most / 3 ? [1, 3] : [1, 2, 5];
      const found = [];
      for (let power = Math.floor(low); power <= high; power++) {
        for (const factor of factors) found.push(power + Math.log10(factor));
      }
      const inside = found.filter((at) => at >= low && at <= high);
      return inside.length >= 3 ? inside : round(10 ** low, 10 ** high, most).filter((norm) => norm > 0).map(Math.log10);
    }

    /** With as few digits as tell them apart; on a linear axis all with as many decimals. */
    labels(splits) {
      const plain = splits.filter((at) => at !== this.odd && at !== this.zero);
      const words = this.log ? distinct(plain.map((at) => this.from(at))) : fixed(plain);
      return splits.map((at) => (at === this.odd ? "NaN, \u221e" : at === this.zero ? "0" : words[plain.indexOf(at)]));
    }
  }

  function distinct(values) {
    for (let digits = 3; digits < 16; digits++) {
      const words = values.map((value) => Number(value.toPrecision(digits)).toString());
      if (new Set(words).size === words.length) return words;
    }
    return values.map(String);
  }

  function fixed(values) {
    const step = Math.min(...values.slice(1).map((value, place) => value - values[place]));
    const decimals = Math.ceil(-Math.log10(step) - 1e-9);
    const plain = Number.isFinite(decimals) && decimals < 16 && Math.max(...values) < 1e6;
    return plain ? values.map((value) => value.toFixed(Math.max(0, decimals))) : distinct(values);
  }

  const widened = (low, high) => [low - 0.3 * (high - low || 1), high + 0.3 * (high - low || 1)];

  /** Round numbers within a range, at most so many. */
  function round(low, high, most) {
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((wide) => wide >= rough);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(at * step);
    return found;
  }

  // ---- marks ----

  function mark(canvas, shape, x, y, size) {
    const half = size / 2;
    const path = (...points) => {
      canvas.beginPath();
      points.forEach(([dx, dy]) => canvas.lineTo(x + dx * half, y + dy * half));
    };
    const lines = (...pairs) => {
      canvas.beginPath();
      for (const [[a, b], [c, d]] of pairs) {
        canvas.moveTo(x + a * half, y + b * half);
        canvas.lineTo(x + c * half, y + d * half);
      }
      canvas.stroke();
    };
    switch (shape) {
      case "dot": canvas.fillRect(x - half / 2, y - half / 2, half, half); break;
      case "square": canvas.fillRect(x - half, y - half, size, size); break;
      case "frame": canvas.strokeRect(x - half, y - half, size, size); break;
      case "disc": canvas.beginPath(); canvas.arc(x, y, half, 0, 7); canvas.fill(); break;
      case "ring": canvas.beginPath(); canvas.arc(x, y, half, 0, 7); canvas.stroke(); break;
      case "up": path([-1.1, 1], [1.1, 1], [0, -1.1]); canvas.fill(); break;
      case "down": path([-1.1, -1], [1.1, -1], [0, 1.1]); canvas.fill(); break;
      case "diamond": path([0, -1.5], [1.5, 0], [0, 1.5], [-1.5, 0]); canvas.closePath(); canvas.stroke(); break;
      case "cross": lines([[-1, -1], [1, 1]], [[-1, 1], [1, -1]]); break;
      case "plus": lines([[-1.2, 0], [1.2, 0]], [[0, -1.2], [0, 1.2]]); break;
      case "minus": lines([[-1.2, 0], [1.2, 0]]); break;
      case "equal": lines([[-1.2, -0.5], [1.2, -0.5]], [[-1.2, 0.5], [1.2, 0.5]]); break;
    }
  }

  function ink(canvas, slug) {
    const [name, shape] = LOOKS[slug];
    canvas.fillStyle = canvas.strokeStyle = colour(name);
    canvas.lineWidth = 1.5 * uPlot.pxRatio;
    return shape;
  }

  function chip(slug, count) {
    const node = make("span", "chip");
    const canvas = make("canvas");
    canvas.width = canvas.height = 16 * uPlot.pxRatio;
    const paint = () => {
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, canvas.width, canvas.height);
      mark(context, ink(context, slug), canvas.width / 2, canvas.width / 2, 8 * uPlot.pxRatio);
    };
    paint();
    repaints.push(paint);
    node.append(canvas, make("span", "", spaced(slug)), make("span", "count", number(count)));
    return node;
  }

  // ---- charts ----

  const charts = [];
  const repaints = [];
  const tip = make("div", "tip");
  tip.hidden = true;

  const wideEnough = () => innerWidth > 720;

  function width(labels) {
    const canvas = make("canvas").getContext("2d");
    canvas.font = FONT;
    return Math.ceil(Math.max(...labels.map((label) => canvas.measureText(label).width))) + 14;
  }

  function axis(options) {
    return {
      font: FONT,
      stroke: () => colour("--soft"),
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
      gap: 6,
      ...options,
    };
  }

  /**
   * A picture that zooms along x. ``wanted`` has: height, x and y ranges and axes, ``data`` (of a series of bars,
   * if any), ``draw(u)``, and ``probe(u, left, top)``, which says what lies under the pointer.
   */
  class Chart {
    constructor(holder, wanted) {
      this.holder = holder;
      this.wanted = wanted;
      const { x, y, bars } = wanted;
      const options = {
        width: this.room(),
        height: wanted.height,
        padding: [10, 28, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => () => this.zoom(null) },
        },
        scales: { x: { time: false, range: () => x.range() }, y: { range: () => y.range() } },
        series: [{}, bars ? this.bars() : { paths: () => null, points: { show: false } }],
        axes: [axis(x.axis), axis(y.axis)],
        hooks: {
          draw: [(u) => this.inside(u, () => wanted.draw(u))],
          setSelect: [(u) => this.selected(u)],
          setCursor: [(u) => this.hover(u)],
        },
      };
      this.plot = new uPlot(options, this.data(), holder);
      this.spot = this.plot.over.appendChild(make("div", "spot"));
      this.spot.hidden = true;
      this.plot.over.addEventListener("click", () => this.under && wanted.choose(this.under));
      this.plot.over.addEventListener("mouseleave", () => this.leave());
      charts.push(this);
    }

    bars() {
      return {
        stroke: null,
        fill: () => colour("--bar"),
        width: 0,
        points: { show: false },
        paths: uPlot.paths.bars({ size: [1, Infinity], gap: 1 }),
      };
    }

    data() {
      return this.wanted.data ? this.wanted.data() : [this.wanted.x.range(), [null, null]];
    }

    room() {
      return document.documentElement.classList.contains("printing") ? PAPER_WIDTH : this.holder.clientWidth;
    }

    refresh() {
      this.plot.batch(() => {
        if (this.plot.width !== this.room()) this.plot.setSize({ width: this.room(), height: this.wanted.height });
        this.plot.setData(this.data());
        this.plot.redraw(true, true);
      });
    }

    inside(u, draw) {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(left, top, width, height);
      u.ctx.clip();
      draw();
      u.ctx.restore();
    }

    selected(u) {
      const { left, width } = u.select;
      if (width < 4) return;
      const range = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.zoom(range);
    }

    zoom(range) {
      this.wanted.x.zoom(range);
      this.refresh();
    }

    hover(u) {
      const { left, top } = u.cursor;
      const found = left < 0 ? null : this.wanted.probe(u, left, top);
      if (!found) return this.leave();
      this.under = found.id;
      this.spot.hidden = found.x === undefined;
      if (found.x !== undefined) {
        this.spot.style.transform = `translate(${found.x}px, ${found.y}px)`;
      }
      tip.replaceChildren(...found.lines);
      tip.hidden = false;
      const box = u.over.getBoundingClientRect();
      const room = tip.getBoundingClientRect();
      const x = Math.min(box.left + left + 14, document.documentElement.clientWidth - room.width - 8);
      const y = box.top + top + 18 + room.height > innerHeight ? box.top + top - room.height - 12 : box.top + top + 18;
      tip.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
    }

    leave() {
      this.under = undefined;
      this.spot.hidden = true;
      tip.hidden = true;
    }
  }

  const line = (className, ...texts) => {
    const node = make("div", className);
    node.append(...texts);
    return node;
  };

  function heading(model, id) {
    return line("head", make("span", "id", number(id)), " ", make("code", "", model.name(id)));
  }

  function pointed(model, id, table) {
    const lines = [heading(model, id)];
    lines.push(line("", model.kindsOf(id).map(spaced).join(", ")));
    if (table && table.holds(id)) {
      lines.push(line("", table.describe(id)), line("", table.words(id)));
      const sign = table.header.signs[id];
      if (sign) lines.push(line("soft", sign));
    }
    const roles = model.header.roles[id];
    if (roles) lines.push(line("soft", roles.slice(0, 4).join(", ")));
    return lines.filter((node) => node.textContent);
  }

  /** A vertical line at the chosen id or norm, with its mark. */
  function highlight(u, x, y) {
    const { left, top, width, height } = u.bbox;
    if (x < left || x > left + width) return;
    const { ctx } = u;
    ctx.strokeStyle = colour("--chosen");
    ctx.lineWidth = 1.5 * uPlot.pxRatio;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    if (y !== undefined) {
      ctx.lineWidth = 2.5 * uPlot.pxRatio;
      ctx.beginPath();
      ctx.arc(x, y, 6 * uPlot.pxRatio, 0, 7);
      ctx.stroke();
    }
  }

  const idAxis = (label) => ({
    space: 84,
    size: 34,
    incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5],
    values: (u, splits) => splits.map((id) => number(id)),
    ...label,
  });

  const idRange = (view) => ({ range: () => view.ids || view.allIds(), zoom: (range) => view.zoomIds(range) });

  function drawMap(view, holder) {
    const { model } = view;
    const lanes = model.lanes();
    const label = (lane) => `${spaced(lane.slug)} ${number(lane.count)}`;
    const middle = (place) => lanes.length - place - 0.5;
    const draw = (u) => {
      const ratio = uPlot.pxRatio;
      const [low, high] = [Math.max(0, Math.floor(u.scales.x.min)), Math.min(model.span, Math.ceil(u.scales.x.max) + 1)];
      lanes.forEach((lane, place) => {
        ink(u.ctx, lane.slug);
        const y = u.valToPos(middle(place), "y", true) - 7 * ratio;
        for (let id = low; id < high; id++) {
          if (!lane.has(id)) continue;
          const start = id;
          while (id + 1 < high && lane.has(id + 1)) id++;
          const left = u.valToPos(start - 0.5, "x", true);
          const wide = u.valToPos(id + 0.5, "x", true) - left;
          const least = 2 * ratio;
          u.ctx.fillRect(wide < least ? left - (least - wide) / 2 : left, y, Math.max(least, wide), 14 * ratio);
        }
      });
      if (view.chosen !== null) highlight(u, u.valToPos(view.chosen, "x", true));
    };
    const probe = (u, left, top) => {
      const lane = lanes[Math.min(lanes.length - 1, Math.floor((top / u.over.clientHeight) * lanes.length))];
      const at = Math.round(u.posToVal(left, "x"));
      const reach = Math.ceil(Math.abs(u.posToVal(left + 6, "x") - u.posToVal(left, "x")));
      let id = Math.max(0, Math.min(model.span - 1, at));
      for (let step = 0; step <= reach; step++) {
        const near = [at - step, at + step].find((one) => one >= 0 && one < model.span && lane.has(one));
        if (near !== undefined) { id = near; break; }
      }
      return { id, lines: pointed(model, id) };
    };
    view.idCharts.push(new Chart(holder, {
      height: lanes.length * 26 + 46,
      x: { ...idRange(view), axis: idAxis() },
      y: {
        range: () => [0, lanes.length],
        axis: {
          size: width(lanes.map(label)),
          splits: () => lanes.map((_, place) => middle(place)),
          values: () => lanes.map(label),
          grid: { show: false },
        },
      },
      draw, probe, choose: view.choose,
    }));
  }

  function drawScatter(view, table, norms, holder) {
    const { model } = view;
    const places = Float64Array.from(table.norms, (norm) => norms.place(norm));
    const order = [...FIRST.keys()].reverse();
    const byGroup = order.map((group) => {
      const rows = [];
      table.groups.forEach((other, row) => other === group && rows.push(row));
      return [FIRST[group], rows];
    });
    const draw = (u) => {
      const ratio = uPlot.pxRatio;
      const { min, max } = u.scales.x;
      const scaleX = u.bbox.width / (max - min);
      const scaleY = u.bbox.height / (u.scales.y.max - u.scales.y.min);
      const x = (row) => u.bbox.left + (table.first + row - min) * scaleX;
      const y = (row) => u.bbox.top + u.bbox.height - (places[row] - u.scales.y.min) * scaleY;
      const visible = (row) => table.first + row >= min && table.first + row <= max;
      const count = Math.min(table.rows, max - min);
      const dot = (count > 20000 ? 2.6 : count > 3000 ? 4 : 7) * ratio;
      for (const [slug, rows] of byGroup) {
        const shape = ink(u.ctx, slug);
        const size = shape === "dot" ? dot : (rows.length > 1000 ? 4 : 6) * ratio;
        u.ctx.globalAlpha = shape === "dot" && count > 20000 ? 0.55 : 0.9;
        for (const row of rows) if (visible(row)) mark(u.ctx, shape, x(row), y(row), size);
      }
      u.ctx.globalAlpha = 1;
      if (table.holds(view.chosen)) highlight(u, x(view.chosen - table.first), y(view.chosen - table.first));
    };
    const probe = (u, left, top) => {
      let best = null, least = NEAR * NEAR;
      const from = Math.max(0, Math.floor(u.posToVal(left - NEAR, "x")) - table.first);
      const past = Math.min(table.rows - 1, Math.ceil(u.posToVal(left + NEAR, "x")) - table.first);
      for (let row = from; row <= past; row++) {
        const x = u.valToPos(table.first + row, "x");
        const y = u.valToPos(places[row], "y");
        // Of rows that lie upon each other the odd one counts.
        const distance = (x - left) ** 2 + (y - top) ** 2 + table.groups[row];
        if (distance < least) { least = distance; best = { id: table.first + row, x, y }; }
      }
      return best && { ...best, lines: pointed(model, best.id, table) };
    };
    const chart = new Chart(holder, {
      height: wideEnough() ? 300 : 260,
      x: { ...idRange(view), axis: idAxis({ label: "token id", labelSize: 20, labelFont: FONT, size: 28 }) },
      y: {
        range: () => norms.range,
        axis: {
          size: (u, values) => (values ? width(values) : 40),
          splits: (u, side, low, high) => norms.splits(low, high, 6),
          values: (u, splits) => norms.labels(splits),
        },
      },
      draw, probe, choose: view.choose,
    });
    view.idCharts.push(chart);
    return chart;
  }

  function drawNorms(view, table, norms, holder) {
    const { model } = view;
    const lanes = table.marked();
    const LANE = 17, TALL = 150;
    let bins = null;
    const binned = () => {
      const [low, high] = norms.range;
      const count = Math.max(24, Math.min(120, Math.round(holder.clientWidth / 9), Math.ceil(table.judged.length / 4)));
      const wide = (high - low) / count;
      const counts = new Array(count).fill(0);
      for (const norm of table.judged) {
        const bin = Math.floor((norms.to(norm) - low) / wide);
        if (bin >= 0 && bin < count) counts[bin]++;
      }
      bins = { low, wide, counts, top: Math.max(1, ...counts) };
      return [counts.map((_, bin) => low + (bin + 0.5) * wide), counts];
    };
    const laneValue = () => ((bins.top * 1.06) / TALL) * LANE;
    const middle = (place) => -(place + 1.1) * laneValue();
    const label = (lane) => `${spaced(lane.slug)} ${number(lane.rows.length)}`;
    const counts = () => round(0, bins.top, 4).filter((count) => Number.isInteger(count));
    const draw = (u) => {
      const ratio = uPlot.pxRatio;
      lanes.forEach((lane, place) => {
        ink(u.ctx, lane.slug);
        u.ctx.globalAlpha = lane.rows.length > 500 ? 0.35 : 0.8;
        const y = u.valToPos(middle(place), "y", true);
        for (const row of lane.rows) {
          const x = u.valToPos(norms.place(table.norms[row]), "x", true);
          u.ctx.fillRect(x - 0.75 * ratio, y - 5.5 * ratio, 1.5 * ratio, 11 * ratio);
        }
      });
      u.ctx.globalAlpha = 1;
      if (table.holds(view.chosen)) {
        highlight(u, u.valToPos(norms.place(table.norms[view.chosen - table.first]), "x", true));
      }
    };
    const probe = (u, left, top) => {
      const y = u.posToVal(top, "y");
      if (y >= 0) return inBin(u, left);
      const lane = lanes[Math.max(0, Math.min(lanes.length - 1, Math.floor(-y / laneValue() - 0.6)))];
      let best = null, least = NEAR;
      for (const row of lane ? lane.rows : []) {
        const x = u.valToPos(norms.place(table.norms[row]), "x");
        if (Math.abs(x - left) < least) { least = Math.abs(x - left); best = row; }
      }
      return best === null ? null : { id: table.first + best, lines: pointed(model, table.first + best, table) };
    };
    const inBin = (u, left) => {
      const bin = Math.floor((u.posToVal(left, "x") - bins.low) / bins.wide);
      if (!bins.counts[bin]) return null;
      const [from, to] = [bin, bin + 1].map((edge) => norms.from(bins.low + edge * bins.wide));
      const lines = [line("", `norm ${from.toPrecision(3)} to ${to.toPrecision(3)}`), line("", rowsInUse(bins.counts[bin]))];
      if (bins.counts[bin] <= 3) {
        table.norms.forEach((norm, row) => {
          if (norm >= from && norm < to) lines.push(heading(model, table.first + row));
        });
      }
      return { lines: lines.slice(0, 5) };
    };
    binned();
    const below = () => -(lanes.length ? lanes.length + 0.7 : 0) * laneValue();
    return new Chart(holder, {
      height: TALL + lanes.length * LANE + (lanes.length ? 12 : 0) + 58,
      bars: true,
      data: binned,
      x: {
        range: () => norms.range,
        zoom: (range) => view.zoomNorms(table, range),
        axis: {
          size: 28, label: "norm", labelSize: 20, labelFont: FONT,
          splits: (u, side, low, high) => norms.splits(low, high, Math.max(2, Math.floor(u.width / 90))),
          values: (u, splits) => norms.labels(splits),
        },
      },
      y: {
        range: () => [below(), bins.top * 1.06],
        axis: {
          size: width([...lanes.map(label), number(bins.top)]),
          splits: () => [...lanes.map((_, place) => middle(place)).reverse(), ...counts()],
          values: () => [...lanes.map(label).reverse(), ...counts().map(number)],
          grid: { show: false },
        },
      },
      draw, probe, choose: view.choose,
    });
  }

  const rowsInUse = (count) => `${number(count)} ${count === 1 ? "row" : "rows"} in use`;

  // ---- one model ----

  class View {
    constructor(article, model) {
      this.article = article;
      this.model = model;
      this.ids = null;
      this.chosen = null;
      this.idCharts = [];
      this.idButtons = [];
      this.choose = (id) => this.choosing(id);
      drawMap(this, article.querySelector(".map"));
      this.idButton(article.querySelector(".search"));
      this.tables = [...article.querySelectorAll("section.rows")].map((section, place) => this.table(section, place));
      this.search(article.querySelector(".find"), article.querySelector(".hits"));
      for (const button of article.querySelectorAll("button.token")) {
        button.addEventListener("click", () => this.choosing(Number(button.dataset.id)));
      }
    }

    table(section, place) {
      const table = this.model.tables[place];
      const norms = new Norms(table);
      const legend = section.querySelector(".legend");
      legend.append(table.used ? chip("in-use", table.used) : chip("rows", table.rows), ...table.marked().map((lane) => chip(lane.slug, lane.rows.length)));
      const found = { table, norms };
      found.charts = [
        drawNorms(this, table, norms, section.querySelector(".norms")),
        drawScatter(this, table, norms, section.querySelector(".scatter")),
      ];
      if (norms.zoomable) {
        found.button = press("zoom", "Zoom to rows in use", () => {
          this.zoomNorms(table, norms.range === norms.all ? norms.bulk : null);
        });
        section.querySelector(".norms-title").before(found.button);
      }
      this.idButton(section.querySelector(".scatter-title"));
      return found;
    }

    zoomNorms(table, range) {
      const found = this.tables.find((one) => one.table === table);
      found.norms.range = range || found.norms.all;
      if (found.button) found.button.textContent = range ? "Show all norms" : "Zoom to rows in use";
      found.charts.forEach((chart) => chart.refresh());
    }

    /** Before a picture of ids: what shows the last ones, where added tokens and padding lie, on their own. */
    idButton(before) {
      const { span } = this.model;
      const last = span - this.model.tail();
      if (last < 1 || last > span / 10) return;
      const button = press("zoom", "", () => this.zoomIds(this.ids ? null : [span - last * 1.2 - 1, span]));
      button.dataset.last = number(last);
      before.before(button);
      this.idButtons.push(button);
      this.nameIdButtons();
    }

    nameIdButtons() {
      for (const button of this.idButtons) {
        button.textContent = this.ids ? "Show all ids" : `Zoom to the last ${button.dataset.last} ids`;
      }
    }

    zoomIds(range) {
      const [low, high] = this.allIds();
      this.ids = range && [Math.max(low, range[0]), Math.min(high, Math.max(range[1], range[0] + 4))];
      this.idCharts.forEach((chart) => chart.refresh());
      this.nameIdButtons();
    }

    allIds() {
      const { span } = this.model;
      return [-0.5 - span * 0.005, span * 1.005 - 0.5];
    }

    choosing(id) {
      if (id === undefined) return;
      this.chosen = id;
      if (this.ids && id !== null && (id < this.ids[0] || id > this.ids[1])) this.zoomIds(null);
      this.article.querySelector(".chosen").replaceChildren(...(id === null ? [] : this.card(id)));
      [...this.idCharts, ...this.tables.map((found) => found.charts[0])].forEach((chart) => chart.plot.redraw(false));
    }

    card(id) {
      const { model } = this;
      const close = press("close", "\u00d7", () => this.choosing(null));
      close.setAttribute("aria-label", "Unmark the token");
      const list = make("dl", "facts");
      const add = (label, ...words) => {
        const pair = make("div");
        const said = make("dd");
        said.append(...words);
        pair.append(make("dt", "", label), said);
        list.append(pair);
      };
      add("kind", model.kindsOf(id).map(spaced).join(", ") || "no token");
      for (const table of model.tables) {
        const label = table.header.name;
        if (!table.holds(id)) { add(label, "no row"); continue; }
        const sign = table.header.signs[id];
        add(label, [table.words(id), table.describe(id), sign].filter(Boolean).join("; "));
        const nearest = table.header.nearest[id];
        if (nearest) add("nearest", ...nearest.map(([other, cosine]) => line("one", this.link(other), ` ${cosine.toFixed(2)}`)));
      }
      const roles = model.header.roles[id];
      if (roles) add("referred to by", roles.join(", "));
      return [close, heading(model, id), list];
    }

    link(id, act = () => this.choosing(id)) {
      const button = press("token", "", act);
      button.append(make("span", "id", number(id)), " ", make("code", "", this.model.name(id)));
      return button;
    }

    search(input, hits) {
      const clear = () => hits.replaceChildren();
      const pick = (id) => { clear(); this.choosing(id); };
      input.addEventListener("input", () => {
        const { ids, total } = find(this.model, input.value);
        const items = ids.map((id) => {
          const item = make("li");
          item.append(this.link(id, () => pick(id)));
          return item;
        });
        if (input.value && !total) items.push(make("li", "soft", "No token has this text or id."));
        if (total > ids.length) items.push(make("li", "soft", `and ${number(total - ids.length)} more`));
        hits.replaceChildren(...items);
      });
      input.addEventListener("keydown", (event) => {
        if (event.key === "Escape") { input.value = ""; clear(); }
        if (event.key !== "Enter") return;
        const { ids } = find(this.model, input.value);
        if (ids.length) pick(ids[0]);
      });
    }
  }

  /** Ids whose number or text fits, the best first. A space may stand for the mark that a vocabulary uses. */
  function find(model, typed) {
    if (!typed) return { ids: [], total: 0 };
    const written = typed.replace(/\\/g, "\\\\").replace(/"/g, '\\"');
    const spellings = [...new Set([written, written.replace(/ /g, "\u0120"), written.replace(/ /g, "\u2581")])];
    const bare = written.trim().toLowerCase();
    const ranked = [[], [], [], []];
    const asked = /^\d{1,9}$/.test(typed.trim()) ? Number(typed) : -1;
    if (asked >= 0 && asked < model.span) ranked[0].push(asked);
    for (let id = 0; id < model.span; id++) {
      if (id === asked || !model.has(id)) continue;
      const text = model.texts[id];
      if (spellings.includes(text)) ranked[0].push(id);
      else if (bare && /^[\u0120\u2581]/.test(text) && text.slice(1) === written) ranked[1].push(id);
      else if (spellings.some((spelling) => text.startsWith(spelling))) ranked[2].push(id);
      else if (bare && text.toLowerCase().includes(bare)) ranked[3].push(id);
    }
    const ids = ranked.flat();
    return { ids: ids.slice(0, MOST_HITS), total: ids.length };
  }

  // ---- the page ----

  function complain(article, words) {
    for (const chart of article.querySelectorAll(".chart")) chart.replaceChildren(make("p", "caption", words));
    const search = article.querySelector(".search");
    if (search) search.hidden = true;
  }

  const started = new Map();

  function start(article) {
    if (!started.has(article)) started.set(article, draw(article));
    return started.get(article);
  }

  async function draw(article) {
    const data = article.querySelector("script.packed");
    if (!data) return;
    if (typeof DecompressionStream === "undefined") {
      complain(article, "This browser cannot unpack the pictures (no DecompressionStream): any browser from 2023 on can.");
      return;
    }
    new View(article, await unpack(data.textContent));
    article.dataset.drawn = "yes";
  }

  function redraw() {
    repaints.forEach((paint) => paint());
    charts.forEach((chart) => chart.refresh());
  }

  document.body.append(tip);
  const articles = [...document.querySelectorAll("article")];
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) start(entry.target);
  }, { rootMargin: "600px" });
  articles.forEach((article) => watch.observe(article));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => charts.forEach((chart) => chart.room() !== chart.plot.width && chart.refresh()));
  });
  let folded = [];
  addEventListener("beforeprint", () => {
    articles.forEach(start);
    document.documentElement.classList.add("printing");
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => { details.open = true; });
    redraw();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    folded.forEach((details) => { details.open = false; });
    redraw();
  });
})();
