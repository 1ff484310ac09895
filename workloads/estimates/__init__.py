"""When what waits will probably start: runtimes learned from what has ended, and the queue played forward with them."""
