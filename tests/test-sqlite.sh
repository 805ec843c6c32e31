#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The whole way with a library that was not written for it: SQLite's memory, charged by tenant
# through libtally, is known to the daemon to the byte; a limit refuses one tenant alone; a killed
# process gives all back.
#
# Needs $TALLYD, $TALLYCTL and $SQLITE_TENANTS: the programs to test.

# Most functions are run by name, through ok and wait_for.
# shellcheck disable=SC2317

set -u

for name in TALLYD TALLYCTL SQLITE_TENANTS; do
	if [ ! -x "${!name:-}" ]; then
		echo "Bail out! \$$name is not a program"
		exit 1
	fi
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/test-sqlite.XXXXXX") || exit 1
socket=$dir/run/tallyd.sock
export TALLY_ADDRESS=unix:$socket LC_ALL=C
unset NOTIFY_SOCKET RUNTIME_DIRECTORY
rows=100000
limit=$((4 << 20))
daemon=
worker=
number=0
failed=0

cleanup() {
	[ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null
	[ -z "$daemon" ] || kill -KILL "$daemon" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ok DESCRIPTION COMMAND...: one line of TAP; on failure with what program and daemon wrote.
ok() {
	local description=$1

	shift
	number=$((number + 1))
	if "$@"; then
		echo "ok $number - $description"
	else
		echo "not ok $number - $description"
		echo "# failed: $*"
		sed 's/^/# /' "$dir/out" "$dir/log"
		failed=1
	fi
}

ctl() {
	timeout 10 "$TALLYCTL" --socket "$socket" "$@"
}

current() {
	ctl get "$1" memory.current --exact
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds.
wait_for() {
	local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))

	shift
	until "$@"; do
		[ "${EPOCHREALTIME/[.,]/}" -lt "$end" ] || return 1
		sleep 0.02
	done
}

is_up() {
	[ -e "$socket" ] && ctl status >/dev/null 2>&1
}

run() {
	timeout 240 "$SQLITE_TENANTS" "$@" >"$dir/out" 2>&1
}

count_is() { # PATTERN COUNT
	[ "$(grep -cE "$1" "$dir/out")" -eq "$2" ]
}

# Eight steps at which tenants hold something, then closed, then shut down.
all_checks_are_exact() {
	count_is '^check .* exact$' 10 && count_is '^check ' 10 &&
		count_is '^check .*: daemon=[1-9][0-9]{5,} sqlite=[1-9][0-9]{5,} blocks=[1-9]' 8
}

holds() { # POOL BYTES
	[ "$(current "$1")" -eq "$2" ]
}

holds_more_than() { # POOL BYTES
	[ "$(current "$1" 2>/dev/null || echo 0)" -gt "$2" ]
}

# What t2 had at its limit, as it counted itself.
peak_is_near_limit() {
	local peak

	peak=$(sed -n 's/^t2 .* peak=\([0-9]*\) .*/\1/p' "$dir/out")
	[ "$peak" -le "$limit" ] && [ "$peak" -gt $((limit / 2)) ]
}

limit_was_counted() {
	ctl get /limited/t2 memory.events |
		awk '$1 == "max" || $1 == "oom" { n += $2 } END { exit !(n > 0) }'
}

each_holds_nothing() {
	holds /killed/t1 0 && holds /killed/t2 0 && holds /killed/t3 0 && holds /killed/shared 0
}

ends_with() { # STATUS COMMAND...
	local status=$1

	shift
	"$@"
	[ $? -eq "$status" ]
}

echo 1..19

mkdir "$dir/run"
touch "$dir/out"
printf '[daemon]\nflush_interval = 2s\n' >"$dir/tallyd.conf"
"$TALLYD" --config "$dir/tallyd.conf" --runtime-dir "$dir/run" >"$dir/log" 2>&1 &
daemon=$!
ok "the daemon answers" wait_for 10 is_up

ok "three tenants in one process, with checks: status 0" run --check --rows $rows
ok "all three finished" count_is "^t[123] rows=$rows .* result=finished$" 3
ok "each check was exact, to the byte" all_checks_are_exact
ok "memory without a tenant was charged to the shared pool" count_is '^shared .* held=[1-9]' 1
ok "the daemon knows of nothing left" holds /sqlite 0

ok "one tenant with a limit: status 0" \
	run --check --rows $rows --base /limited --limit t2=$limit
ok "it was refused and rolled back to what it had committed" \
	count_is '^t2 refused at "rows, .*": rolled back to [1-9][0-9]* rows, verified$' 1
ok "it is reported as refused" count_is '^t2 rows=[1-9][0-9]{3,4} .* result=refused$' 1
ok "the others finished" count_is "^t[13] rows=$rows .* result=finished$" 2
ok "it came near its limit, never above" peak_is_near_limit
ok "the daemon counted the event" limit_was_counted
ok "each check was exact, with a refusal too" all_checks_are_exact

"$SQLITE_TENANTS" --base /killed --rows 10000000 >"$dir/out" 2>&1 &
worker=$!
ok "a working process holds bytes" wait_for 20 holds_more_than /killed $((4 << 20))
kill -KILL "$worker"
wait "$worker" 2>/dev/null
worker=
ok "killed, it has given all back within a second" wait_for 1 holds /killed 0
ok "nothing is left in any of its pools" each_holds_nothing

kill -TERM "$daemon"
ok "the daemon ends with status 0" ends_with 0 wait "$daemon"
daemon=
ok "without a daemon it ends with status 1" ends_with 1 run
ok "and says why" count_is 'cannot open the daemon' 1

exit $failed
