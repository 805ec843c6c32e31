/* SPDX-License-Identifier: MIT
 *
 * marks.pml - how a look finds what tally_stat_add() has moved (ARCHITECTURE.md, lib/core/segment.h, rstat.c, rstat-key.c): client
 * threads on CPUs of their own store a value, then marks; one flusher follows the marks and clears them.  Two keys, key k in subtree k,
 * in one group, or in two groups of one extent.  Each CPU has a store buffer: what it stored is seen by others later, in order, and by
 * itself at once.  That is x86; on AArch64 the client's stores are in order because they are releases, and the flusher's because a
 * fence follows each that matters.
 *
 * There is one block of cells and marks, and all store into it: a thread may be moved between its value and its marks, and beyond
 * the CPUs the block is everybody's.  Blocks of several CPUs have nothing in common and are not modelled.
 *
 *   spin -a [-Dbounds] [-Dvariant] marks.pml && gcc -O2 -DCOLLAPSE -DSAFETY -o pan pan.c && ./pan -m200000
 *
 * Checked: a look at a subtree that begins when an update of it has returned (BACK; whoever knows of that knows it by a store that
 * is behind the others in the buffer) has that update when it ends.  The flusher looks for ever, at either subtree, by pools or by
 * marks; so when the clients are done, a look at each subtree has brought all.  With HARM only that is asked: looks that begin
 * when the clients are done and their buffers are empty.
 *
 * One update is followed: any one of client 0, of either key.  Of all others only the marks matter.
 *
 * Configurations: CLIENTS (1, 2), OPS (updates of each), OTHERS (1: any number of further updates, by any number of threads, which set
 * marks in any order at any time), GROUPS (1, 2), DEPTH (stores that a buffer holds), FAILS (times that a look has no memory for
 * what it found, and marks it again).
 * Broken variants; each must fail:
 *  V_TEST                a mark that is set already is not stored (1: the key's; 2: the group's; 3: the extent's on the page)
 *  V_VALUE_LAST          the value is stored after the marks
 *  V_GROUP_FIRST         the group's mark is stored before the key's
 *  V_PAGE_FIRST          the page's mark is stored before the group's
 *  V_TOUCH_LAST          the cell is in use (`left`) before the CPU is touched: who finds it in use returns too soon
 *  V_READ_FIRST          the flusher reads the value, then clears the key's mark
 *  V_GROUP_LATE          it looks at the keys' marks, then clears the group's
 *  V_PAGE_LATE           it looks at the groups' marks, then clears the page's
 *  V_NO_FENCE            no fence after a mark is cleared (1: the page's; 2: a group's; 3: a key's)
 *  V_GROUP_DROPPED       the group is not set again for keys elsewhere that are left
 *  V_PAGE_DROPPED        the page is not set again for them
 *  V_ELSEWHERE           marks of keys elsewhere are cleared as well
 *  V_FAIL_KEY            (FAILS) what could not be brought is marked again at the key alone
 */
#ifndef CLIENTS
#define CLIENTS 1
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef GROUPS
#define GROUPS 1
#endif
#ifndef DEPTH
#define DEPTH 8
#endif
#ifndef FAILS
#define FAILS 0
#endif

#ifdef V_NO_FENCE
#define NO_FENCE (V_NO_FENCE+0)
#else
#define NO_FENCE 0
#endif

/* ------------------------------------------------------------------ memory, and what has not come there yet */
#define VALUE      0                             /* the cell has the update */
#define BACK       1                             /* ghost: it has returned */
#define KEY(k)     (2+(k))
#define LEFT(k)    (4+(k))                       /* the cell is in use */
#define GROUP_OF(k) ((k)*(GROUPS-1))
#define GROUP(g)   (6+(g))
#define PAGE       8
#define TOUCHED    9
#define PLACES     10
bit memory[PLACES];

typedef Buffer { byte n; byte place[DEPTH]; bit v[DEPTH] };
Buffer buffer[CLIENTS+1];                        /* of the clients' CPUs, and of the flusher's */
#define FLUSHER CLIENTS
#define ROOM(c) (buffer[c].n < DEPTH)

inline store(c, p, x) { buffer[c].place[buffer[c].n] = p; buffer[c].v[buffer[c].n] = x; buffer[c].n++ }

inline load(c, p, ret) {
    d_step {
        ret = memory[p];
        i = 0;
        do
        :: i < buffer[c].n -> if :: buffer[c].place[i]==p -> ret = buffer[c].v[i] :: else fi; i++
        :: else -> break
        od;
        i = 0
    }
}

byte finished;                                   /* clients, and `others` */
bit followed;                                    /* the update has begun */
bit key;                                         /* it is of that key */
bit seen;                                        /* the figures have it, and no more is to be found out */

/* The oldest store of a CPU comes to memory, at any time. */
active [CLIENTS+1] proctype cpu() {
    byte i, p;
end:
    do
    :: d_step {
        !seen && buffer[_pid].n > 0 ->
        p = buffer[_pid].place[0];
        memory[p] = buffer[_pid].v[0];
        buffer[_pid].n--;
        for (i : 0 .. DEPTH-2) { buffer[_pid].place[i] = buffer[_pid].place[i+1]; buffer[_pid].v[i] = buffer[_pid].v[i+1] }
        buffer[_pid].place[DEPTH-1] = 0; buffer[_pid].v[DEPTH-1] = 0;
        i = 0; p = 0
       }
    od
}

/* ------------------------------------------------------------------ a client: lib/stat.c, segment_mark() */
#define ME (_pid-CLIENTS-1)

/* That a store goes into the buffer nobody sees: all up to the next load, or until the buffer is full, is one step. */
#ifdef V_TEST
#define TOGETHER
inline mark(p, level) { if :: V_TEST==level -> load(ME, p, m); if :: m :: else -> put(p) fi :: else -> put(p) fi }
#else
#define TOGETHER atomic
inline mark(p, level) { put(p) }
#endif
inline put(p) { atomic { if :: seen :: !seen && ROOM(ME) -> store(ME, p, 1) fi } }
inline put_value() { if :: this -> put(VALUE) :: else fi }

active [CLIENTS] proctype client() {
    byte n, i; bit k, m, this;
    do
    :: !seen && n < OPS ->
       TOGETHER {
        if :: k = 0 :: k = 1 fi;
        if :: atomic { ME==0 && !followed -> followed = 1; key = k; this = 1 } :: true fi;
#ifndef V_VALUE_LAST
        put_value();
#endif
#ifdef V_GROUP_FIRST
        mark(GROUP(GROUP_OF(k)), 2); mark(KEY(k), 1); mark(PAGE, 3);
#elif defined(V_PAGE_FIRST)
        mark(KEY(k), 1); mark(PAGE, 3); mark(GROUP(GROUP_OF(k)), 2);
#else
        mark(KEY(k), 1); mark(GROUP(GROUP_OF(k)), 2); mark(PAGE, 3);
#endif
#ifdef V_VALUE_LAST
        put_value();
#endif
        skip
       }
       load(ME, LEFT(k), m);
       if
       :: m
       :: else ->
#ifdef V_TOUCH_LAST
        put(LEFT(k));
#endif
        load(ME, TOUCHED, m);                    /* tested before it is stored: nobody clears it */
        atomic {
            if :: m :: else -> put(TOUCHED) fi;
#ifndef V_TOUCH_LAST
            put(LEFT(k))
#endif
        }
       fi;
       atomic {
        if :: this -> put(BACK) :: else fi;
        n++; k = 0; m = 0; this = 0
       }
    :: break
    od;
    atomic { finished++; n = 0 }
}

#if OTHERS
/* Updates of others only set marks, some time. */
active proctype others() {
    do
    :: d_step { !seen -> memory[KEY(0)] = 1 }
    :: d_step { !seen -> memory[KEY(1)] = 1 }
    :: d_step { !seen -> memory[GROUP(0)] = 1 }
    :: d_step { !seen && GROUPS==2 -> memory[GROUP(1)] = 1 }
    :: d_step { !seen -> memory[PAGE] = 1 }
    :: d_step { !seen -> memory[TOUCHED] = 1 }
#ifdef V_TOUCH_LAST
    :: d_step { !seen -> memory[LEFT(key)] = 1 }
#else
    :: d_step { !seen && memory[TOUCHED] -> memory[LEFT(key)] = 1 }
#endif
    :: break
    od;
    finished++
}
#endif

/* ------------------------------------------------------------------ the flusher: lib/core/rstat.c, rstat-key.c */
byte fails = FAILS;

#ifdef HARM
#define ASKED (memory[BACK] && s==key && finished==CLIENTS+OTHERS && buffer[0].n==0 && buffer[CLIENTS-1].n==0)
#else
#define ASKED (memory[BACK] && s==key)
#endif

inline set_mark(p, x) { if :: seen :: !seen && ROOM(FLUSHER) -> store(FLUSHER, p, x) fi }
inline fence(level) { if :: NO_FENCE==level || buffer[FLUSHER].n==0 fi }

inline clear_mark(p, level) {
    atomic { load(FLUSHER, p, m); if :: m -> set_mark(p, 0) :: else fi };
    if :: m -> fence(level) :: else fi
}

inline read_cell(k) {
    atomic {
        if
        :: k==key && memory[VALUE] -> seen = 1; forget()
        :: !(k==key && memory[VALUE])
        :: fails > 0 -> fails--; failed = 1; set_mark(KEY(k), 1);
#ifndef V_FAIL_KEY
           set_mark(GROUP(GROUP_OF(k)), 1); set_mark(PAGE, 1)
#endif
        fi
    }
}

inline look_key(k) {
#ifdef V_READ_FIRST
    load(FLUSHER, KEY(k), m);
    if :: m -> read_cell(k); atomic { set_mark(KEY(k), 0) }; fence(3) :: else fi
#else
    clear_mark(KEY(k), 3);
    if :: m -> read_cell(k) :: else fi
#endif
}

/* The group's mark is only looked at, and stays. */
inline look_pool() {
    load(FLUSHER, GROUP(GROUP_OF(s)), m);
    if :: m -> look_key(s) :: else fi
}

inline look_group(g) {
    do
    :: j==2 -> break
    :: j < 2 && GROUP_OF(j)!=g -> j++
    :: j < 2 && GROUP_OF(j)==g && j==s -> look_key(s); j++
    :: j < 2 && GROUP_OF(j)==g && j!=s ->
#ifdef V_ELSEWHERE
       clear_mark(KEY(j), 3);
#else
       atomic { load(FLUSHER, KEY(j), m); if :: m -> left = 1 :: else fi };
#endif
       j++
    od;
#ifdef V_GROUP_LATE
    atomic { set_mark(GROUP(g), 0) }; fence(2);
#endif
    atomic {
        j = 0;
        if
        :: left -> left = 0; again = 1;
#ifndef V_GROUP_DROPPED
           set_mark(GROUP(g), 1)
#endif
        :: else
        fi
    }
}

inline look_marks() {
#ifdef V_PAGE_LATE
    load(FLUSHER, PAGE, m);
#else
    clear_mark(PAGE, 1);
#endif
    if
    :: m ->
        do
        :: g < GROUPS ->
#ifdef V_GROUP_LATE
            load(FLUSHER, GROUP(g), m);
#else
            clear_mark(GROUP(g), 2);
#endif
            if :: m -> look_group(g) :: else fi;
            g++
        :: else -> break
        od;
#ifdef V_PAGE_LATE
        atomic { set_mark(PAGE, 0) }; fence(1);
#endif
        atomic {
            g = 0;
#ifndef V_PAGE_DROPPED
            if :: again || failed -> set_mark(PAGE, 1) :: else fi;
#endif
            again = 0
        }
    :: else
    fi
}

/* When the update has come: there is nothing more to find out. */
inline forget() {
    d_step {
        for (i : 0 .. PLACES-1) { memory[i] = 0 }
        for (i : 0 .. (CLIENTS+1)*DEPTH-1) { buffer[i / DEPTH].place[i % DEPTH] = 0; buffer[i / DEPTH].v[i % DEPTH] = 0 }
        for (i : 0 .. CLIENTS) { buffer[i].n = 0 }
        i = 0
    }
}

active proctype flusher() {
    byte i, j, g; bit s, m, asked, left, again, failed;
    do
    :: atomic {
        !seen -> if :: s = 0 :: s = 1 fi;
        asked = ASKED;
        load(FLUSHER, TOUCHED, m)                /* never cleared: loaded later it only finds more */
       }
       if
       :: m -> look_pool()                       /* by pools */
       :: m -> look_marks()                      /* by marks */
       :: !m
       fi;
       d_step { assert(failed || seen || !asked); s = 0; asked = 0; m = 0; failed = 0 }
    :: seen -> break
    od
}
