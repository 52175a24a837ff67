UPDATE marks SET settled = $1, candidate = nextval('numbers'), writers = NULL, attempts_from = $2, at = clock_timestamp()
