"""The rules that `tokaudit data` applies: those about token data, and no other."""

CODES = ("TA901", "TA902", "TA903", "TA904", "TA905", "TA907")
