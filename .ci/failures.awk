# SPDX-FileCopyrightText: the tiergate authors
# SPDX-License-Identifier: Apache-2.0

# Passes the output of `go test -v` on, and at its end repeats what each failed test said:
# the logs of brokers that come after it are longer than what a CI page shows.

{ print; fflush() }

$1 == "===" && $2 ~ /^[A-Z]+$/ { name = $3; keep = 0; next }
$1 == "---" && $2 ~ /^(PASS|FAIL|SKIP):$/ { # the end of a test, indented where it has a parent
	keep = 0
	if ($2 == "FAIL:") {
		failed[$3] = 1
		for (parent = $3; sub(/\/[^\/]*$/, "", parent); )
			covered[parent] = 1
	}
	next
}
/^ +[A-Za-z0-9_]+\.go:[0-9]+: |^panic: / { keep = 25 } # a message, and some lines below it
keep > 0 { keep--; said[name] = said[name] $0 "\n" }

END {
	for (test in failed) {
		if (test in covered)
			continue
		text = said[test]
		print "\n=== failed: " test "\n" substr(text, length(text) > 3000 ? length(text) - 2999 : 1)
	}
}
