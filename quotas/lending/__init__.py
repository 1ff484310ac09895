"""How much may be lent when: lending windows and the lend limit that follows from them."""
