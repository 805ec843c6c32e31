/* SPDX-License-Identifier: MIT */

/*
 * A transfer: bytes that one row was granted become another's, while the daemon may be killed before
 * any step, also in the middle of a restart. Rows outlive it; counters do not, and are made anew from
 * the rows. Two rows, each in a pool of its own below a common one that has a limit; beside transfers
 * there are grants and returns of both rows, so that a record of a transfer that is carried out too
 * late, or twice, overwrites something.
 *
 * Broken variants: V_OTHER_FIRST, the second row is written before the first one decides; V_NO_RECORD,
 * the first does not say what the other is to be; V_KEPT, the record stays when it is done; V_ADDED, a
 * restart adds the bytes to the other row again instead of writing what it is to be; V_UNCHARGED_FIRST,
 * the first path's counter is lowered before the rows say so; V_NOT_BEFORE_SERVING, a restart serves
 * before it writes the other row.
 */

#ifndef OPS
#define OPS 3
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#define LIMIT 3 /* of the common pool: as much as is granted at the beginning */

/* The ledger: granted, and of an open transfer what the other row is to be (NONE: none is open). */
#define NONE 15
byte granted[2];
byte other[2] = NONE;

/* The daemon's memory. */
byte counter[2];
byte common;

bool moving; /* between the first change of a transfer and its last */
byte total;  /* what the clients have been told that they have, of both rows */
byte crashes, ops;

#define SUM (granted[0] + granted[1])
/* A decided transfer whose other row is not written yet: what it is to be counts. */
#define TO_BE(i) (other[1 - (i)] != NONE -> other[1 - (i)] : granted[i])

inline check()
{
	d_step {
		assert(common <= LIMIT);
		/* Counters are never below the rows. */
		assert(counter[0] >= granted[0]);
		assert(counter[1] >= granted[1]);
		assert(common >= SUM);
		/* Neither lost nor doubled. */
		assert(TO_BE(0) + TO_BE(1) == total);
	}
}

/* Before any step the daemon may be killed: everything but the ledger is gone. */
#define STEP(code)                                                                                 \
	if                                                                                         \
	:: crashes < CRASHES -> crashes++; goto restart                                            \
	:: atomic { code }                                                                         \
	fi;                                                                                        \
	check()

active proctype daemon()
{
	byte from, to, n;

	granted[0] = 2;
	granted[1] = 1;
	total = LIMIT;

restart:
	skip;
	d_step {
		counter[0] = granted[0];
		counter[1] = granted[1];
		common = SUM;
		from = 0;
	}
#ifdef V_NOT_BEFORE_SERVING
	goto serve;
#endif
	/* What was decided and perhaps not written is written: as often as it takes. */
	do
	:: from < 2 ->
		to = 1 - from;
		if
		:: other[from] != NONE ->
#ifdef V_ADDED
			if
			:: crashes < CRASHES -> crashes++; goto restart
			:: granted[to] = granted[to] + 1
			fi;
#else
			if
			:: crashes < CRASHES -> crashes++; goto restart
			:: granted[to] = other[from]
			fi;
#endif
			if
			:: crashes < CRASHES -> crashes++; goto restart
			:: other[from] = NONE
			fi
		:: else
		fi;
		from++
	:: else -> break
	od;
	skip;
	d_step {
		counter[0] = granted[0];
		counter[1] = granted[1];
		common = SUM
	}
serve:
	skip;
	check();
	do
	:: ops == OPS -> break
	/* A grant, where there is room; the row may be either. */
	:: ops < OPS && common < LIMIT ->
		ops++;
		if :: to = 0 :: to = 1 fi;
		STEP(counter[to]++; common++);
		STEP(granted[to]++; total++)
	/* A return. */
	:: ops < OPS && SUM > 0 ->
		ops++;
		if
		:: granted[0] > 0 -> from = 0
		:: granted[1] > 0 -> from = 1
		fi;
		STEP(granted[from]--; total--);
		STEP(counter[from]--; common--)
	/* A transfer of one byte. */
	:: ops < OPS && SUM > 0 ->
		ops++;
		if
		:: granted[0] > 0 -> from = 0
		:: granted[1] > 0 -> from = 1
		fi;
		to = 1 - from;
		STEP(counter[to]++);
#ifdef V_OTHER_FIRST
		STEP(granted[to]++);
		STEP(granted[from]--);
		STEP(counter[from]--)
#else
#ifdef V_UNCHARGED_FIRST
		STEP(counter[from]--);
#endif
#ifdef V_NO_RECORD
		STEP(granted[from]--);
		STEP(granted[to]++);
#else
		STEP(granted[from]--; other[from] = granted[to] + 1);
		STEP(granted[to] = other[from]);
#ifndef V_KEPT
		STEP(other[from] = NONE);
#endif
#endif
#ifndef V_UNCHARGED_FIRST
		STEP(counter[from]--)
#endif
#endif
	od;
	/* At rest counters are the rows. */
	assert(counter[0] == granted[0] && counter[1] == granted[1] && common == SUM);
	assert(SUM == total)
}
