#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Credit neither vanishes nor comes from nothing, whatever comes in between: by the whole system
# under load, and by the stock alone on shared memory. Builds that are wrong on purpose have to be
# found out by the same means, or those would prove nothing.
#
#	test-stress.sh [SECONDS [events]]	so long for each of the runs that have to pass; 3.
#						events: that run alone
#
# Needs $TALLYD, and in $STRESS the programs of tests/stress.

set -u

seconds=${1:-3}
only=${2:-}
# Wrong builds are found out in half a second or two.
patience=40
passed=0
failed=0
skipped=0

if [ -n "${TEST_QEMU:-}" ]; then
	echo "1..1"
	echo "ok - stress # SKIP qemu does not keep a store before a later load, as the processor would"
	exit 0
fi
for program in "${TALLYD:-}" "${STRESS:-}/sound"; do
	if [ ! -x "$program" ]; then
		echo "Bail out! '$program' is not a program"
		exit 1
	fi
done

# Prints a line of TAP, and counts it.
report() {
	printf '%s\n' "$1"
	case $1 in
	'ok '*'# SKIP'*) skipped=$((skipped + 1)) ;;
	'ok '*) passed=$((passed + 1)) ;;
	'not ok '*) failed=$((failed + 1)) ;;
	esac
}

# pass PROGRAM DESCRIPTION: passes on what it reports. It says itself what failed, unless it breaks
# off.
pass() {
	local line

	if [ ! -x "$STRESS/$1" ]; then
		report "ok - $2 # SKIP it is not built"
		return
	fi
	while IFS= read -r line; do
		report "$line"
	done < <("$STRESS/$1" "$seconds" 2>&1)
	wait $! || [ $? = 1 ] || report "not ok - $2: broken off"
}

# control PROGRAM SECONDS STATUS DESCRIPTION
control() {
	local output status

	output=$("$STRESS/$1" "$2" 2>&1)
	status=$?
	case $status in
	77) report "ok - $4 # SKIP ${output#\# }" ;;
	"$3")
		printf '%s\n' "$output" | head -n 1
		report "ok - $4"
		;;
	*)
		printf '%s\n# status %s\n' "$output" "$status"
		report "not ok - $4"
		;;
	esac
}

credit() {
	pass stress "the whole system"
	control sound "$seconds" 0 "two processes conserve what is in their stocks"
	control unarmed "$patience" 1 "sequences that are not armed are found out"
	control mm-cid "$patience" 1 "an index that is not the CPU's number is found out"
	control remote "$patience" 1 "atomics and sequences on one word are found out"
}

[ -n "$only" ] || credit
pass events "a storm of events"

echo "1..$((passed + failed + skipped))"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
