#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tally.h and libtally.so as other programs meet them: the header compiles alone, in every dialect
# and with every compiler that is here; the library exports what the header declares and no more, and
# is linked so that no charge ever resolves a symbol or allocates thread-local storage. Prints TAP.
# $LIBTALLY names the library.

LIBTALLY=${LIBTALLY:-./.libs/libtally.so}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
include=$top/lib
export LC_ALL=C

work=$(mktemp -d "${TMPDIR:-/tmp}/test-header.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
number=0
status=0

# ------------------------------------------------------------------ helpers

# check TEXT COMMAND ...: one TAP line; a failure shows what the command printed.
check() {
	local text=$1

	shift
	number=$((number + 1))
	if "$@" >"$work/out" 2>&1; then
		echo "ok $number - $text"
		return
	fi
	echo "not ok $number - $text"
	sed 's/^/#   /' "$work/out"
	status=1
}

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# ------------------------------------------------------------------ the header

# Twice, because a header is. What it defines is used, so that macros are compiled too.
cat >"$work/alone.c" <<'EOF'
#include <tally.h>
#include <tally.h>

struct tally_options options;
struct tally_charge_args args;
tally_item item;
uint64_t values[] = {TALLY_BYTES_MAX, TALLY_FAIL_OPEN, TALLY_CREATE, TALLY_EPHEMERAL, TALLY_PERSIST,
	TALLY_EXACT, TALLY_RATELIMITED, TALLY_CACHED};
uint32_t flags[] = {TALLY_NOWAIT, TALLY_FORCE};
EOF
cp "$work/alone.c" "$work/alone.cc"

compile() {
	"$1" "-std=$2" -pedantic-errors -Wall -Wextra -Werror "${@:4}" -I"$include" -fsyntax-only "$3"
}

for compiler in gcc clang; do
	for std in c11 c17; do
		if command -v $compiler >/dev/null; then
			check "$compiler -std=$std" compile $compiler $std "$work/alone.c" \
				-Wstrict-prototypes -Wmissing-prototypes -Wundef
		else
			skip "$compiler -std=$std" "no $compiler here"
		fi
	done
done
for compiler in g++ clang++; do
	for std in c++11 c++17; do
		if command -v $compiler >/dev/null; then
			check "$compiler -std=$std" compile $compiler $std "$work/alone.cc" -Wundef
		else
			skip "$compiler -std=$std" "no $compiler here"
		fi
	done
done

# ------------------------------------------------------------------ the manual

# The first example of libtally(3) is a whole program.
cut_example() {
	awk '/^\.Sh EXAMPLES/ { here = 1 }
		here && /^\.Ed/ { exit }
		on { print }
		here && /^\.Bd/ { on = 1 }' "$top/man/libtally.3" | sed 's/\\e/\\/g'
}

builds_example() {
	cut_example >"$work/example.c"
	grep -q 'int main\|^main' "$work/example.c" &&
		"${CC:-cc}" -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$include" \
			-fsyntax-only "$work/example.c"
}

check "the example of libtally(3) is a program" builds_example

# Every function has its place in the page.
are_described() {
	declared | while read -r name; do
		grep -q "^\.Fn $name " "$top/man/libtally.3" || echo "$name"
	done >"$work/missing"
	cat "$work/missing"
	[ ! -s "$work/missing" ]
}

# ------------------------------------------------------------------ the library

declared() {
	"${CC:-cc}" -E -P "$include/tally.h" | grep -o '\<tally_[a-z_]*(' | tr -d '(' | sort -u
}

# Without the version, and without the version's own symbol.
exported() {
	nm -D --defined-only "$LIBTALLY" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

same_symbols() {
	declared >"$work/declared"
	exported >"$work/exported"
	[ -s "$work/declared" ] && diff "$work/declared" "$work/exported"
}

dynamic() {
	readelf -dW "$LIBTALLY"
}

has_soname() {
	dynamic | grep -F '(SONAME)' | tee /dev/stderr | grep -qF '[libtally.so.1]'
}

has_flags() {
	dynamic | grep -F '(FLAGS_1)' | tee /dev/stderr | grep -w NOW | grep -qw NODELETE
}

# Succeeds when the file can be read and no line of it matches.
has_none() {
	local pattern=$1

	shift
	"$@" >"$work/lines" || return 1
	! grep -E "$pattern" "$work/lines"
}

# What the header promises that it never does: threads, signal handlers, output of its own, an exit.
never='^(pthread_create|thrd_create|clone|fork|vfork|sigaction|signal|sigprocmask|pthread_sigmask'
never+='|syslog|vsyslog|printf|vprintf|__printf_chk|puts|perror|stdout|stderr'
never+='|exit|_exit|quick_exit|abort|__assert_fail)$'

imported() {
	nm -D --undefined-only "$LIBTALLY" | awk '{ sub(/@.*/, "", $2); print $2 }'
}

check "libtally(3) has every function" are_described
if [ ! -r "$LIBTALLY" ]; then
	check "$LIBTALLY can be read" false
else
	check "exports what tally.h declares, and no more" same_symbols
	check "its soname is libtally.so.1" has_soname
	check "symbols are resolved at the start, and it is never unloaded" has_flags
	check "no thread-local storage of its own" has_none '^ +TLS ' readelf -lW "$LIBTALLY"
	check "no relocation to any" has_none 'R_[A-Z0-9_]+_(D?TPOFF|DTPMOD|TLS)' readelf -rW "$LIBTALLY"
	check "no relocation in its text" has_none '\(TEXTREL\)|\<TEXTREL\>' dynamic
	check "no executable stack" has_none 'GNU_STACK.* RWE ' readelf -lW "$LIBTALLY"
	if [ -n "${TEST_SANITIZE:-}" ]; then
		skip "calls nothing that it must not" "the sanitizer does"
	else
		check "calls nothing that it must not" has_none "$never" imported
	fi
fi
echo "1..$number"
exit $status
