"""How much may be lent at which time: lending windows, and the lend limit that follows from them."""
