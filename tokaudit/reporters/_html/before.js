"use strict";
// Paper shows the pixels of a canvas as they are: at least two for each CSS pixel.
if (devicePixelRatio < 2) Object.defineProperty(window, "devicePixelRatio", { value: 2 });
