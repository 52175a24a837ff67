-- How far a round has come that could not pass all it was to.
UPDATE marks SET settled = $1, attempts_from = $2
