#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Reclaim with a library that was not written for it: SQLite's page cache, charged to a pool, shrinks
# when a neighbour needs memory, and what is read stays right; one that is protected keeps its own; a
# limit that is only observed refuses nothing and counts.
#
# Needs $TALLYD, $TALLYCTL and $SQLITE_CACHE: the programs to test.

# Most functions are run by name, through ok and wait_for.
# shellcheck disable=SC2317

set -u

for name in TALLYD TALLYCTL SQLITE_CACHE; do
	if [ ! -x "${!name:-}" ]; then
		echo "Bail out! \$$name is not a program"
		exit 1
	fi
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/test-sqlite.XXXXXX") || exit 1
socket=$dir/run/tallyd.sock
export TALLY_ADDRESS=unix:$socket LC_ALL=C
unset NOTIFY_SOCKET RUNTIME_DIRECTORY
limit=$((12 << 20))
need=$((8 << 20))
daemon=
workers=()
number=0
failed=0

cleanup() {
	[ ${#workers[@]} -eq 0 ] || kill -KILL "${workers[@]}" 2>/dev/null
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

start() { # POOL
	"$SQLITE_CACHE" "$1" >"$dir/out" 2>&1 &
	workers+=($!)
}

count_passes() {
	grep -c '^pass=' "$dir/out"
}

has_passed() { # PASSES
	[ "$(count_passes)" -ge "$1" ]
}

goes_on() {
	local passes

	passes=$(count_passes)
	wait_for 60 has_passed $((passes + 2))
}

holds_more_than() { # POOL BYTES
	[ "$(current "$1" 2>/dev/null || echo 0)" -gt "$2" ]
}

holds_at_most() { # POOL BYTES
	[ "$(current "$1")" -le "$2" ]
}

gave_back() {
	tail -n 1 "$dir/out" | grep -qE ' asked=[1-9][0-9]* given_back=[1-9]'
}

counted() { # POOL EVENT
	ctl get "$1" memory.events | grep -qE "^$2 [1-9]"
}

neighbour() { # POOL BYTES
	ctl create "$1" && ctl run "$1" "$2" -- true >"$dir/neighbour" 2>&1
}

ends() { # by SIGTERM, well
	kill -TERM "${workers[0]}"
	wait "${workers[0]}"
	local status=$?

	workers=()
	[ "$status" -eq 0 ]
}

trial_is_not_refused() {
	timeout 120 "$SQLITE_CACHE" --passes 2 /trial >"$dir/out" 2>&1 && count_passes >/dev/null &&
		tail -n 1 "$dir/out" | grep -q '^pass=2 .* refused=0$'
}

ends_with() { # STATUS COMMAND...
	local status=$1

	shift
	"$@"
	[ $? -eq "$status" ]
}

echo 1..16

mkdir "$dir/run"
touch "$dir/out"
cat >"$dir/tallyd.conf" <<END
[pool caches]
path = /caches
memory.max = $limit
[pool protected]
path = /protected
memory.max = $limit
[pool keeps]
path = /protected/a
memory.min = $limit
[pool trial]
path = /trial
memory.max = 1M
enforce = observe
END
"$TALLYD" --config "$dir/tallyd.conf" --runtime-dir "$dir/run" >"$dir/log" 2>&1 &
daemon=$!
ok "the daemon answers" wait_for 10 is_up

start /caches/a
ok "a cache reads its database" wait_for 60 has_passed 2
ok "it uses most of the limit" wait_for 60 holds_more_than /caches/a $((limit - need))
ok "a neighbour that needs most of the limit gets it" neighbour /caches/b $need
ok "the cache gave back" wait_for 60 gave_back
ok "it goes on, and reads what was written" goes_on
ok "reclaim is counted" counted /caches reclaim
ok "nobody was refused for good" ends_with 1 counted /caches oom_kill
ok "it ends well" ends

start /protected/a
ok "a protected cache uses most of the limit" wait_for 60 holds_more_than /protected/a $((limit - need))
ok "what needs its memory is refused" ends_with 75 neighbour /protected/b $need
ok "it keeps its cache" holds_more_than /protected/a $((limit - need))
ok "it ends well" ends

ok "a limit on trial refuses nothing" trial_is_not_refused
ok "it counts what it would have refused" counted /trial would_refuse

kill -TERM "$daemon"
ok "the daemon ends with status 0" wait "$daemon"
daemon=
exit "$failed"
