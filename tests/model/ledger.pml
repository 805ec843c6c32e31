/* SPDX-License-Identifier: MIT
 *
 * ledger.pml - the credit protocol of tallyd (ARCHITECTURE.md): one daemon (two threads: loop, drainer) that may be
 * killed before any step, one client session with NT threads (may be killed before any step), and a second session "B" that only
 * competes for the limit.  What survives a kill of the daemon: rows[] (the ledger) and the client's words.  What does not:
 * c (counters), sess, all locals, the request socket.
 *
 *   spin -a [-Dbounds] [-Dvariant] ledger.pml && gcc -O2 -DCOLLAPSE -DSAFETY -o pan pan.c && ./pan -m100000
 *   (see README.md and run; the default, without a variant, is the REPAIRED protocol and must verify)
 *
 * Configurations: NT NSLOT NK LIMIT OPS CRASHES BOPS KILL, GIVEUP (0/1), FORCE (number of force charges), DETACH (number of
 * detach+attach-again rounds of key 1 by thread 0), PERSIST (a separate small model, at the end: operations on two rows),
 * LANES (1: one request a key; 2: one row a key with one `granted`, and two request lanes: lane 0 need 1 + batch, lane 1 need 2, no batch),
 *   (The third lane, by which what was set aside is fetched, is one more of lane 1's sort: a need without a batch. What is set aside is in the counters
 *   alone, which a crash makes anew from the rows: it is gone then, as if its turn had never come.)
 * NOWAIT (1: an asker may also ask without waiting, and be granted into the reserve by the daemon; 2: thread 1 always does, thread 0 never),
 * AHEAD (number of messages that ask ahead),
 * LOSE (0: the compare of a deposit fails only if the key is another), OPENKEEP (attaching does not empty the reserve: it must be empty),
 * FIXLANE (LANES=2, NT=2: thread t misses on lane t only; a smaller space), ONE_COUNTER (LANES=2: the lanes' seqs come from one counter).
 *
 * HARM and PROBE: see the monitor.
 * Broken variants; each must fail.  H = an earlier text of the design said this or left it open;  C = control.
 *  H V_NOLAST            the row keeps {granted,seq} but not how much that seq was given: "same answer" = the need
 *  H V_REFUSAL_UNREC     a refusal does not enter its seq in the row
 *  H V_ACCEPT_ANY        "an answer whose asker gave up goes into the reserve by whoever reads it", without an accept-once record
 *  H V_GIVEUP_FORGETS    giving up retires the request (next miss sends seq+1; late answer dropped)
 *  H V_TWO_INTENTS       one open intent a row, but two threads may have intents (of two rows) on one word
 *  H V_COUNTER_FIRST     give-backs lower the counter before the row
 *  H V_STEAL_NOFOLD      a steal of credit born from a force charge is closed before the force word is folded in
 *  H V_SCAN_ONLY         key used again once every slot was seen free of it (registers not waited for)
 *  H V_QUIET_FIRST       movers waited for before the scan only;   V_QUIET_LAST   after the scan only
 *  H V_HIT_TWO_STEP      a hit reads the handle, then changes the slot; detach does not wait for such hits
 *  H V_NO_AID            messages name the 20-bit key only
 *  H V_DETACH_NOWAIT     detach closes a row that has an intent open (the drainer is at work)
 *  H V_DETACH_CHECK      it looks for an open intent, then closes the row (the drainer opens one in between)
 *  H V_RELEASE_NOWAIT    the same at the end of a session
 *  H V_EARLY_START       the daemon steals in a session before all its intents are settled
 *  H V_PERSIST_2ROWS     (PERSIST) persistent charge/uncharge as two flips of two rows
 *  C V_GRANT_AFTER_ANSWER answer sent before the row is flipped
 *  C V_INTENT_AFTER      word changed before the intent is recorded
 *  C V_SPLIT_FLIP        granted and intent flipped apart
 *  C V_STEAL_ALL         the steal takes what is there now, not the recorded amount
 *  C V_STEAL_NOKEY       the steal's compare leaves out the key
 *  C V_CLIENT_PARITY     the client writes parity 0 when it evicts
 *  C V_GIVEUP_RACE       reader looks whether the asker waits, then hands over (two steps)
 *  C V_PREV_SEPARATE     `previous` is not flipped together with granted
 * With LANES=2:
 *  V_LANE_SHARED_SEQ     both lanes share one seq/last in the row (the client numbers each lane, or with ONE_COUNTER both together)
 *  V_LANE_ANS            answers do not carry the lane: accepted by whichever record has that seq
 *  V_LANE_FORGET         detach drops lane 0's record only (1: attach starts both anew; 2: attach leaves lane 1's as it is;
 *                        3: as 2, and an answer is accepted for a live handle only)
 *  V_LANE_NORESEND       resume sends lane 0's records only
 *  V_LANE_SPLIT          {granted} and {seq, last} of the lane flipped apart
 * With NOWAIT=1 (deposits):
 *  V_DEP_BEFORE_FLIP     the reserve word is changed before the row is flipped
 *  V_DEP_NO_INTENT       {granted, seq, last} are flipped without an intent: a crash before the word is changed loses the credit
 *  V_DEP_SPLIT           ... and the intent in a flip of its own, after them
 *  V_DEP_OPEN_INTENT     deposits also in a row whose intent is open (a drain's), and so forgets that one
 *  V_DEP_NOKEY           the compare leaves out the key: credit in a closed reserve, there for the next attachment (with OPENKEEP; else
 *                        opening it, which empties it, still hides the mistake)
 *  V_DEP_STORE           the word is read, then stored: what the client did in between is lost
 *  V_DEP_NOPARITY        the word's parity is not flipped
 *  V_DEP_KEEP            `granted` keeps what could not be put into the word
 *  V_DEP_SETTLE_KEEP     a restart closes the intent and asks not whether the word was changed
 *  V_DEP_AS_STEAL        a restart settles a deposit as if it had been a steal (the intent has no kind)
 *  V_DEP_TWICE           a request with the row's seq is carried out again (1: the word only; 2: row and word)
 *  V_DEP_ANSWER_AMOUNT   the answer carries the amount as well
 *  V_DEP_LAST_AMOUNT     `last` is the amount: the *same* answer, after a crash, carries it
 *  V_DEP_LAST_ZERO       `last` is 0: the same answer, after a crash, says refused
 *  V_NOWAIT_RETIRE       a client whose message could not be sent drops the record, that another thread's resume has sent meanwhile
 */
#ifndef NT
#define NT 2
#endif
#ifndef NSLOT
#define NSLOT 1
#endif
#ifndef NK
#define NK 1
#endif
#ifndef LIMIT
#define LIMIT 3
#endif
#ifndef BATCH
#define BATCH 1
#endif
#ifndef HIGH
#define HIGH 1              /* an uncharge that leaves more than HIGH in a slot leaves LOW = HIGH and carries off the rest */
#endif
#ifndef OPS
#define OPS 2               /* operations of each client thread */
#endif
#ifndef OPS0
#define OPS0 OPS
#endif
#ifndef OPS1
#define OPS1 OPS
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef BOPS
#define BOPS 1              /* operations of session B */
#endif
#ifndef KILL
#define KILL 1
#endif
#ifndef GIVEUP
#define GIVEUP 1
#endif
#ifndef FORCE
#define FORCE 0
#endif
#ifndef DETACH
#define DETACH 0
#endif
#ifndef LANES
#define LANES 1
#endif
#ifndef NOWAIT
#define NOWAIT 0
#endif
#if NOWAIT==2
#define NOWAITS (t==1)
#define WAITS (t==0)
#else
#define NOWAITS true
#define WAITS true
#endif
#ifndef AHEAD
#define AHEAD 0
#endif
#ifndef LOSE
#define LOSE 1              /* a deposit's compare may lose all its races */
#endif
#define NEED 1              /* lane 0's */
#if LANES==2
#define LF(x) ,x                                        /* a message's lane */
#define O(k_,l_)      out[(k_)*2+(l_)]
#define NEEDOF(l_)    (NEED+(l_))
#define BATCHOF(l_)   ((l_)==0 -> BATCH : 0)
#ifdef V_LANE_SHARED_SEQ
#define SEQ(k_,l_)    rows[k_].seq
#define LAST(k_,l_)   rows[k_].last
#else
#define SEQ(k_,l_)    rows[k_].seq[l_]
#define LAST(k_,l_)   rows[k_].last[l_]
#endif
#define ZERO_SEQ(k_)  SEQ(k_,0) = 0; SEQ(k_,1) = 0
#define ZERO_LAST(k_) LAST(k_,0) = 0; LAST(k_,1) = 0
#define SETLANE(v)    ; v
#else
#define LF(x)
#define ln 0
#define l2 0
#define dl 0
#define O(k_,l_)      out[k_]
#define NEEDOF(l_)    NEED
#define BATCHOF(l_)   BATCH
#define SEQ(k_,l_)    rows[k_].seq
#define LAST(k_,l_)   rows[k_].last
#define ZERO_SEQ(k_)  SEQ(k_,0) = 0
#define ZERO_LAST(k_) LAST(k_,0) = 0
#define SETLANE(v)
#endif
#if LANES==2 && defined(ONE_COUNTER)
#define NEXTSEQ(k_,l_) O(k_,l_).seq = 1+(O(k_,0).seq > O(k_,1).seq -> O(k_,0).seq : O(k_,1).seq)
#else
#define NEXTSEQ(k_,l_) O(k_,l_).seq++
#endif
#ifdef V_LANE_FORGET
#define FORGET (V_LANE_FORGET+0)
#else
#define FORGET 0
#endif
#ifdef V_NO_AID
#define AIDOK(x,y) true
#else
#define AIDOK(x,y) (x==y)
#endif
#ifdef V_STEAL_NOKEY
#define KEYOK(x,y) true
#else
#define KEYOK(x,y) (x==y)
#endif
#ifdef V_DEP_NOKEY
#define DEPKEYOK(x,y) true
#else
#define DEPKEYOK(x,y) (x==y)
#endif
#ifdef V_DEP_TWICE
#define TWICE (V_DEP_TWICE+0)
#else
#define TWICE 0
#endif

#ifndef PERSIST
/* ------------------------------------------------------------------ shared words (the segment; survive the daemon) */
typedef Word { byte key; byte b; bit p };
Word slot[NSLOT];           /* all the stocks' slots */
Word rsv[NK+1];             /* the reserve word of each key */
byte force[NK+1];           /* cumulative */
byte moving;                /* movers: threads between "about to take credit into a register" and "put it down" */

/* ------------------------------------------------------------------ the ledger (survives the daemon); one flip = one atomic step */
typedef Row {
#if LANES==2 && !defined(V_LANE_SHARED_SEQ)
    byte g; byte seq[2]; byte last[2];           /* one granted; each lane's last answered request and what it was given */
#else
    byte g; byte seq; byte last;                 /* granted; last answered request; what it was given */
#endif
    byte ik; bit ip; byte ia;                    /* intent: 0 none, 1..NSLOT slot, RSV reserve, DPS deposit; new parity; amount */
    byte prev;                                   /* force word already applied */
    byte aid; byte st                            /* attachment number (never reused); 0 free 1 live 2 dying */
};
Row rows[NK+1];
byte rowB;                                       /* session B's row */
#define RSV (NSLOT+1)
#define DPS (NSLOT+2)
#define DEPOSITED 255                            /* `last` of a request that was granted into the reserve: its answer carries nothing */

/* ------------------------------------------------------------------ daemon, volatile */
bit up = 1; bit sess = 1;                        /* sess: this session is resumed and settled */
bit gone;                                        /* session released */
byte c;                                          /* the counter (volatile, = sum of rows after a restart) */
byte gen;                                        /* generation word, read-only for clients */
bit drin;                                        /* drainer inside an operation */

/* ------------------------------------------------------------------ client process memory */
bit alive = 1;
typedef Out { bit act; byte seq; byte w };       /* an outstanding request; w = 1 + thread that waits for it, 0 gave up */
Out out[LANES*(NK+1)];                           /* O(key,lane): the key's one outstanding request of that lane */
bit live[NK+1]; byte caid[NK+1];                 /* the handle: live, attachment number */
byte conn;                                       /* generation that the socket is connected to */
bit rsm;                                         /* a thread is resuming */
byte detw, attw;                                 /* waiting for DETACH / ATTACH of that number */
bit detbusy;
byte dets = DETACH; byte forces = FORCE;
#if AHEAD
byte aheads = AHEAD;
#endif
#if NOWAIT
byte dep[LANES*(NK+1)];                          /* ghost: the last request of the lane that was put into the word */
#if LANES==2
#define DEP(k_,l_)    dep[(k_)*2+(l_)]
#define ZERO_DEP(k_)  ; DEP(k_,0) = 0; DEP(k_,1) = 0
#else
#define DEP(k_,l_)    dep[k_]
#define ZERO_DEP(k_)  ; DEP(k_,0) = 0
#endif
#else
#define ZERO_DEP(k_)
#endif
/* registers of threads; ra is a ghost: incarnation that the credit belongs to */
byte rk[NT], rb[NT], ra[NT];
byte held[NK+1];                                 /* ghost: what the program has charged */

byte crashes = CRASHES; bit kills = KILL; byte bops = BOPS;

mtype { REQ, RES, DET, ATT, NWT, AHD, DON };     /* NWT: as REQ, nobody waits; AHD: ask ahead; DON: NWT's answer, the credit is in the word */
#if LANES==2
#define QLEN (8+AHEAD)
#else
#define QLEN (5+AHEAD)
#endif
chan req = [QLEN] of { mtype, byte, byte, byte LF(bit) };          /* type key aid seq (lane) */
chan ans = [QLEN] of { mtype, byte, byte, byte, byte LF(bit) };    /* type key aid seq amount (lane) */

/* ------------------------------------------------------------------ invariants */
#define CARRIED(t,k)  ((rk[t]==k && ra[t]==caid[k]) -> rb[t] : 0)
#if NT==2
#define REGS(k) (CARRIED(0,k)+CARRIED(1,k))
#else
#define REGS(k) (CARRIED(0,k))
#endif
#define INSLOT(i,k)   (slot[i].key==k -> slot[i].b : 0)
#if NSLOT==2
#define SLOTS(k) (INSLOT(0,k)+INSLOT(1,k))
#else
#define SLOTS(k) (INSLOT(0,k))
#endif
#define WPAR(i,k)     (i>=RSV -> rsv[k].p : slot[(i>=RSV -> 0 : i-1)].p)
/* taken and not yet out of `granted`; or granted, to be deposited, and not yet in the word */
#define INTENT(k)     ((rows[k].ik!=0 && (WPAR(rows[k].ik,k)==rows[k].ip)==(rows[k].ik!=DPS)) -> rows[k].ia : 0)
#define CARRIES(k,l)  (LAST(k,l)==DEPOSITED -> 0 : LAST(k,l))           /* what the answer does */
#ifdef V_DEP_LAST_AMOUNT
byte ldep[LANES*(NK+1)];                         /* ghost: the last request of the lane that was granted by a deposit */
#define LDEP(k,l)     ldep[(k)*LANES+(l)]
#define FLIES(k,l)    (LDEP(k,l)==SEQ(k,l) -> 0 : LAST(k,l))
#else
#define FLIES(k,l)    CARRIES(k,l)
#endif
#define FLY(k,l)      ((O(k,l).act && rows[k].aid==caid[k] && SEQ(k,l)==O(k,l).seq) -> FLIES(k,l) : 0)
#if LANES==2
#define FLYING(k)     (FLY(k,0)+FLY(k,1))
#define OPENREQ(k)    (O(k,0).act || O(k,1).act)
#else
#define FLYING(k)     FLY(k,0)
#define OPENREQ(k)    O(k,0).act
#endif
/* I1, at EVERY state: row + unfolded force = held + idle + registers + granted-but-not-yet-accepted + taken-but-not-yet-flipped.
   When nobody is in the middle of anything the last three are 0: I1 as it is meant.  It implies I3 (held <= granted + unfolded force)
   and I6 (credit of an old incarnation in a word of the new one breaks the sum). */
#define I1(k) (!alive || !live[k] || (rows[k].st==1 && rows[k].aid==caid[k] && \
    rows[k].g + force[k] - rows[k].prev == held[k] + SLOTS(k) + (rsv[k].key==k -> rsv[k].b : 0) + REGS(k) + FLYING(k) + INTENT(k)))
#if NK==2
#define I1ALL (I1(1) && I1(2))
#define SUMROWS (rows[1].g+rows[2].g+rowB)
#else
#define I1ALL I1(1)
#define SUMROWS (rows[1].g+rowB)
#endif
#define I2 (SUMROWS <= LIMIT+FORCE-forces)
#define I2C (!up || c >= SUMROWS)                /* counters never below the rows */
#define I2D (!up || c <= LIMIT+FORCE)            /* ... and never wrapped */
#define I4 (!gone || (SUMROWS==rowB))
#if PROBE==1                  /* both lanes granted, neither accepted, the daemon down */
#define PROBED (!up && FLY(1,0)>0 && FLY(1,1)>0)
#elif PROBE==2                /* both askers gave up, both records are open */
#define PROBED (O(1,0).act && O(1,1).act && O(1,0).w==0 && O(1,1).w==0)
#elif PROBE==3                /* lane 1 refused and not yet told, lane 0 granted and not accepted */
#define PROBED (O(1,1).act && SEQ(1,1)==O(1,1).seq && LAST(1,1)==0 && FLY(1,0)>0)
#elif PROBE==4                /* lane 1 given to one that no longer waits: all of it to the reserve, the daemon stealing from the row meanwhile */
#define PROBED (FLY(1,1)==2 && O(1,1).w==0 && rows[1].ik!=0)
#elif PROBE==5                /* detached with both lanes granted and not accepted */
#define PROBED (!live[1] && rows[1].st==1 && LAST(1,0)>0 && LAST(1,1)>0 && len(ans)>1)
#elif PROBE==6                /* a slot that serves a charge of 2 */
#define PROBED (slot[0].key==1 && slot[0].b>=2)
#elif PROBE==7                /* a reserve that serves a charge of 2 while a record of lane 0 is open */
#define PROBED (rsv[1].key==1 && rsv[1].b>=2 && O(1,0).act)
#elif PROBE==8                /* restarted with a deposit that had not happened, and the reserve closed meanwhile */
#define PROBED (up && rows[1].ik==DPS && rsv[1].p!=rows[1].ip && rsv[1].key==0 && gen>0 && !sess)
#elif PROBE==9                /* ... that had, and the client has used some of it before the restart */
#define PROBED (!up && rows[1].ik==DPS && rsv[1].p==rows[1].ip && rsv[1].b<rows[1].ia && held[1]>0)
#elif PROBE==10               /* deposited, answer lost: the record is open and is sent again */
#define PROBED (sess && gen>0 && O(1,0).act && LAST(1,0)==DEPOSITED && SEQ(1,0)==O(1,0).seq && len(ans)==0 && len(req)>0)
#elif PROBE==11               /* nobody waits, granted by the answer, since the drainer was at work */
#define PROBED (FLY(1,0)>0 && O(1,0).w==0 && rows[1].ik==1)
#elif PROBE==12               /* both lanes deposited, no answer read */
#define PROBED (O(1,0).act && O(1,1).act && LAST(1,0)==DEPOSITED && LAST(1,1)==DEPOSITED && SEQ(1,0)==O(1,0).seq && SEQ(1,1)==O(1,1).seq)
#elif PROBE==13               /* an answer is sent about a deposit that a restart took back */
#define PROBED (rows[1].g==0 && live[1] && O(1,0).act && LAST(1,0)==DEPOSITED && DEP(1,0)!=O(1,0).seq && SEQ(1,0)==O(1,0).seq && len(ans)>0 && sess && gen>0)
#elif PROBE==14               /* a deposit is open while force has not been folded in */
#define PROBED (rows[1].ik==DPS && force[1]>rows[1].prev)
#elif PROBE==15               /* asked ahead by an attachment that is no more, of one that came after */
#define PROBED (live[1] && caid[1]==2 && rows[1].aid==2 && req?[AHD,1,1,0 LF(0)])
#endif

active proctype Monitor() {
end: if
#ifdef HARM                       /* I1 only where nothing moves any more, I3 everywhere: shows that a variant does harm, not just that it could */
    :: alive && live[1] && held[1] > rows[1].g+force[1]-rows[1].prev -> assert(false)
#else
    :: !I1ALL -> assert(false)    /* I1/I3/I6 */
#endif
    :: !I2    -> assert(false)    /* I2 */
    :: !I2C   -> assert(false)    /* I2, counters */
    :: !I2D   -> assert(false)    /* counter gave back more than it had */
    :: !I4    -> assert(false)    /* I4 */
#ifdef PROBE                      /* not a fault: a state that the run must reach (the bounds are not too small to mean anything) */
    :: alive && PROBED -> assert(false)
#endif
    :: timeout ->                 /* nothing can move any more: everything must be settled (I5, and I1, I4 exactly) */
#ifdef HARM
        assert(!sess || I1ALL);     /* (not what a restart has still to settle) */
#endif
        assert(up && c==SUMROWS && (alive || gone));
        assert(!alive || (moving==0 && (rows[1].ik==0 || !sess) && !rsm && detw==0 && attw==0 && (GIVEUP || NOWAIT || !OPENREQ(1))))
    fi
}

/* ------------------------------------------------------------------ client */
inline send(ty,k_,a_,s_,l_) {          /* on a dead socket: EPIPE, the resume sends it again */
    atomic { if :: up && conn==gen && !gone -> assert(nfull(req)); req!ty,k_,a_,s_ LF(l_) :: else -> skip fi }
}
inline evict_or_add(s_,k_) {        /* put rb[t] of k_ into slot s_; what was there of another key comes out into the register */
    if
    :: slot[s_].key==k_ -> slot[s_].b = slot[s_].b + rb[t];
        if :: slot[s_].b > HIGH -> rb[t] = slot[s_].b-HIGH; slot[s_].b = HIGH; rk[t] = k_; ra[t] = caid[k_]
           :: else -> rb[t] = 0
        fi
    :: else ->
        tmp = slot[s_].b; slot[s_].b = rb[t]; rb[t] = tmp;
        tmp = slot[s_].key; slot[s_].key = k_; rk[t] = tmp; ra[t] = caid[tmp];
#ifdef V_CLIENT_PARITY
        slot[s_].p = 0;
#endif
        tmp = 0
    fi
}
#ifdef OPENKEEP                      /* a reserve is opened as it was closed: empty, if nobody put anything in */
#define OPENRSV(k_)
#else
#define OPENRSV(k_) rsv[k_].b = 0;
#endif
inline put_reserve() {              /* add to the reserve; a mismatched add is dropped */
    atomic {
        if :: rb[t] > 0 && rsv[rk[t]].key==rk[t] -> rsv[rk[t]].b = rsv[rk[t]].b + rb[t] :: else -> skip fi;
        rb[t] = 0; rk[t] = 0; ra[t] = 0; moving--
    }
}
#if NOWAIT                          /* sent again by what the record says now: abandoned meanwhile, it is one that nobody waits for */
#define SENTAS ; m2 = (out[x].w==0)
#define RESENT (m2 -> NWT : REQ)
#else
#define SENTAS
#define RESENT REQ
#endif
#define DONE (what==4 || (what==0 && O(k,ln).w!=t+1) || (what==1 && !O(k,ln).act) || (what==2 && detw==0) || (what==3 && attw==0))

proctype Client(byte t) {
    byte ops = (t==0 -> OPS0 : OPS1); byte k, s, tmp, what; byte x; 
    mtype ty; byte k2, a2, s2, m2;
#if LANES==2
    bit ln, l2;                                                         /* lane of this charge; of the answer in hand */
#endif
    {
    skip;
idle: atomic {
        k = 0; s = 0; what = 0; x = 0; k2 = 0; a2 = 0; s2 = 0; m2 = 0; tmp = 0; ty = REQ SETLANE(ln = 0; l2 = 0);
        if :: ops==0 -> goto fin :: ops>0 -> ops-- fi;
#if NK==2
        if :: k = 1 :: k = 2 fi;
#else
        k = 1;
#endif
#if NSLOT==2
        if :: s = 0 :: s = 1 fi;
#endif
        if
        :: !live[k] -> goto idle                /* (a detached handle: the operation is over) */
#ifdef V_HIT_TWO_STEP
        :: live[k] && slot[s].key==k && slot[s].b>0 -> a2 = caid[k]; goto hit2
#endif
        :: live[k] ->                                                   /* charge */
#if LANES==2
#ifdef FIXLANE
            ln = t;
#else
            if :: ln = 0 :: ln = 1 fi;
#endif
#endif
            if
            :: slot[s].key==k && slot[s].b>=NEEDOF(ln) -> slot[s].b = slot[s].b-NEEDOF(ln); held[k] = held[k]+NEEDOF(ln); goto idle
            :: else -> goto miss
            fi
        :: live[k] && held[k]>0 ->                                      /* uncharge: one store, the rest is in the register */
            held[k]--; rk[t] = k; rb[t] = 1; ra[t] = caid[k]; moving++;
            evict_or_add(s,k);
            if :: rb[t]==0 -> moving--; rk[t] = 0; ra[t] = 0; goto idle :: else -> goto spill fi
        :: live[k] && forces>0 -> forces--; force[k]++; held[k]++; goto idle
        :: live[1] && t==0 && dets>0 && !detbusy -> goto detach
#if AHEAD
        :: live[k] && aheads>0 -> aheads--; ops++; a2 = caid[k]; goto ahead     /* (whenever it likes) */
#endif
        fi
    }
#ifdef V_HIT_TWO_STEP
hit2: atomic { if :: slot[s].key==k && slot[s].b>0 -> slot[s].b--; if :: caid[k]==a2 && live[k] -> held[k]++ :: else -> skip fi
                  :: else -> skip fi; goto idle }
#endif
spill: put_reserve(); goto idle;
#if AHEAD
ahead: send(AHD,k,a2,0,0); goto idle;
#endif

miss: atomic {
        if
        :: live[k] && rsv[k].key==k && rsv[k].b>=NEEDOF(ln) ->
            moving++; rk[t] = k; ra[t] = caid[k]; rb[t] = rsv[k].b; rsv[k].b = 0
        :: else -> goto ask
        fi
    }
    atomic {                                                            /* reserve -> register -> held and slot */
        rb[t] = rb[t]-NEEDOF(ln);
        if :: live[k] && caid[k]==ra[t] -> held[k] = held[k]+NEEDOF(ln) :: else -> skip fi;   /* ghost: else the account is closed, charge answers ENODEV */
        if :: rb[t]>0 -> evict_or_add(s,k) :: else -> skip fi
    }
    put_reserve(); goto idle;

ask: atomic {
        if
        :: !live[k] -> goto idle
        :: WAITS && live[k] && !O(k,ln).act -> O(k,ln).act = 1; NEXTSEQ(k,ln); O(k,ln).w = t+1; what = 0; s2 = O(k,ln).seq; a2 = caid[k]
        :: WAITS && live[k] && O(k,ln).act -> what = 1; goto wait       /* shares the trip */
#if NOWAIT
        :: NOWAITS && live[k] && !O(k,ln).act -> O(k,ln).act = 1; NEXTSEQ(k,ln); what = 4; s2 = O(k,ln).seq; a2 = caid[k]     /* tally_try_charge */
        :: NOWAITS && live[k] && O(k,ln).act -> what = 4; goto wait                /* it may read what is there, and goes */
#endif
        fi
    }
#ifdef V_NOWAIT_RETIRE
    atomic { if :: what==4 && !(up && conn==gen && !gone) -> what = 5 :: else -> skip fi;
        if :: what!=5 && up && conn==gen && !gone -> assert(nfull(req)); req!(what==4 -> NWT : REQ),k,a2,s2 LF(ln) :: else -> skip fi };
    atomic { if :: what==5 && O(k,ln).seq==s2 -> O(k,ln).act = 0 :: else -> skip fi; what = (what==5 -> 4 : what) };
#else
    send((what==4 -> NWT : REQ),k,a2,s2,ln);
#endif
    a2 = 0; s2 = 0;

wait: atomic { if
        :: DONE -> if :: what==2 -> goto attach :: what==3 -> detbusy = 0; goto idle :: else -> goto idle fi
        :: GIVEUP && what<2 ->                                          /* the asker's time is over */
            if :: what==0 && O(k,ln).w==t+1 -> O(k,ln).w = 0;
#ifdef V_GIVEUP_FORGETS
                  O(k,ln).act = 0
#endif
               :: else -> skip fi; goto idle
        :: ans?ty,k2,a2,s2,m2 LF(l2) -> goto got                               /* anyone who waits may read */
        :: up && conn!=gen && !rsm && !gone -> rsm = 1; conn = gen;         /* resume */
            if :: true -> do :: ans?_,_,_,_,_ LF(_) :: empty(ans) -> break od /* old socket closed, or read on */
               :: nempty(ans) -> skip fi;
            assert(nfull(req)); req!RES,0,0,0 LF(0); x = LANES
        fi }
    /* resume: send the outstanding again, record read and message sent in two steps */
    do
#if LANES==2
    :: x<2*NK+2 -> atomic { k2 = out[x].act; a2 = caid[x/2]; s2 = out[x].seq SENTAS };
        atomic { if :: k2 -> send(RESENT,x/2,a2,s2,x%2) :: else -> skip fi; k2 = 0; a2 = 0; s2 = 0; m2 = 0; x++;
#ifdef V_LANE_NORESEND
            x++
#endif
        }
#else
    :: x<=NK -> atomic { k2 = out[x].act; a2 = caid[x]; s2 = out[x].seq SENTAS };
        atomic { if :: k2 -> send(RESENT,x,a2,s2,0) :: else -> skip fi; k2 = 0; a2 = 0; s2 = 0; m2 = 0; x++ }
#endif
    :: else -> break
    od;
#if DETACH
    atomic { a2 = detw; s2 = attw };
    atomic { if :: a2 -> send(DET,1,a2,0,0) :: else -> skip fi };
    atomic { if :: s2 -> send(ATT,1,s2,0,0) :: else -> skip fi };
#endif
    atomic { a2 = 0; s2 = 0; x = 0; rsm = 0; goto wait }

got: atomic {                                                           /* accept once */
        if
#if NOWAIT
        :: ty==DON ->                                                   /* closes the record, and that is all */
            if
            :: (O(k2,l2).act && O(k2,l2).seq==s2 && AIDOK(caid[k2],a2)) -> assert(O(k2,l2).w==0); O(k2,l2).act = 0
            :: else -> skip
            fi;
            ty = REQ; k2 = 0; a2 = 0; s2 = 0 SETLANE(l2 = 0); goto wait
#endif
        :: ty==REQ ->
            moving++;                                                   /* (before the look at the handle) */
#ifdef V_LANE_ANS
            if :: O(k2,0).act && O(k2,0).seq==s2 -> l2 = 0 :: O(k2,1).act && O(k2,1).seq==s2 -> l2 = 1 :: else -> skip fi;
#endif
            if
            :: (O(k2,l2).act && O(k2,l2).seq==s2 && AIDOK(caid[k2],a2)
#if FORGET==3
                && live[k2]
#endif
               ) ->
#if NOWAIT
                assert(m2>0 || DEP(k2,l2)!=s2);                         /* what was deposited is not called refused */
#endif
#ifdef V_GIVEUP_RACE
                O(k2,l2).act = 0; x = O(k2,l2).w; rk[t] = k2; ra[t] = a2; rb[t] = m2; goto hand
#else
                O(k2,l2).act = 0; rk[t] = k2; ra[t] = caid[k2];
                if
                :: m2>0 && O(k2,l2).w!=0 -> held[k2] = held[k2]+NEEDOF(l2); rb[t] = m2-NEEDOF(l2)
                :: else -> rb[t] = m2
                fi;
                O(k2,l2).w = 0
#endif
            :: else ->                                                  /* not outstanding: dropped */
#ifdef V_ACCEPT_ANY
                rk[t] = k2; ra[t] = a2; rb[t] = m2
#endif
                skip
            fi
        :: ty==DET -> if :: detw==a2 -> detw = 0 :: else -> skip fi; ty = REQ; k2 = 0; a2 = 0; s2 = 0; m2 = 0 SETLANE(l2 = 0); goto wait
        :: ty==ATT ->
            if :: attw==a2 -> attw = 0; caid[k2] = a2; rsv[k2].key = k2; OPENRSV(k2) live[k2] = 1; O(k2,0).seq = 0; O(k2,0).act = 0; O(k2,0).w = 0
#if LANES==2 && FORGET<2
                ; O(k2,1).seq = 0; O(k2,1).act = 0; O(k2,1).w = 0
#endif
               :: else -> skip fi; ty = REQ; k2 = 0; a2 = 0; s2 = 0; m2 = 0 SETLANE(l2 = 0); goto wait
        fi;
        k2 = 0; a2 = 0; s2 = 0; m2 = 0 SETLANE(l2 = 0)
    }
    put_reserve(); goto wait;
#ifdef V_GIVEUP_RACE
hand: atomic {
        if :: x!=0 -> rb[t] = rb[t]-NEEDOF(l2); if :: O(k2,l2).w==x -> O(k2,l2).w = 0; held[k2] = held[k2]+NEEDOF(l2) :: else -> skip fi
           :: else -> skip fi;
        x = 0; k2 = 0; a2 = 0; s2 = 0; m2 = 0 SETLANE(l2 = 0)
    }
    put_reserve(); goto wait;
#endif
detach:
    atomic { live[1] && !detbusy -> dets--; detbusy = 1; live[1] = 0; held[1] = 0; O(1,0).act = 0; O(1,0).w = 0;
#if LANES==2 && FORGET==0
        O(1,1).act = 0; O(1,1).w = 0;
#endif
        k = 1 };  /* void; (rseq kind: membarrier) */
    atomic { rsv[1].key = 0; rsv[1].b = 0; detw = caid[1]; a2 = caid[1] };
    send(DET,1,a2,0,0);
    atomic { a2 = 0; what = 2; goto wait }
attach:
    atomic { attw = caid[1]+1; a2 = attw };
    send(ATT,1,a2,0,0);
    atomic { a2 = 0; what = 3; goto wait }

fin: skip
    } unless { !alive }
}

/* ------------------------------------------------------------------ daemon */
/* steal: 1 intent into the row; 2 the word, by compare-and-store; 3 row and intent in one flip; 4 the counter */
#define W_KEY(i,k) (i==RSV -> rsv[k].key : slot[(i==RSV -> 0 : i-1)].key)
#define W_B(i,k)   (i==RSV -> rsv[k].b   : slot[(i==RSV -> 0 : i-1)].b)
inline record(i_,k_,n_) { rows[k_].ik = i_; rows[k_].ip = 1-WPAR(i_,k_); rows[k_].ia = n_ }
inline fold(k_) {
    rows[k_].g = rows[k_].g + (force[k_]-rows[k_].prev); c = c + (force[k_]-rows[k_].prev); rows[k_].prev = force[k_]
}
inline take(i_,k_,n_,hit_) {
    if
    :: (KEYOK(W_KEY(i_,k_),k_) && W_B(i_,k_) >= n_) ->
#ifdef V_STEAL_ALL
        n_ = W_B(i_,k_);
#endif
        if :: i_==RSV -> rsv[k_].b = rsv[k_].b-n_; rsv[k_].p = 1-rsv[k_].p
           :: else -> slot[i_-1].b = slot[i_-1].b-n_; slot[i_-1].p = 1-slot[i_-1].p
        fi;
        hit_ = 1
    :: else -> hit_ = 0
    fi
}
inline minus(k_,n_) { if :: rows[k_].g >= n_ -> rows[k_].g = rows[k_].g-n_ :: else -> rows[k_].g = 0 fi }   /* overdraft: clamped */
#if FORCE
#ifndef V_STEAL_NOFOLD
#define CLOSEFOLD(k_) fold(k_)
#endif
#endif
#ifndef CLOSEFOLD
#define CLOSEFOLD(k_) skip
#endif
inline steal(i_,k_,n_,hit_) {       /* entered with n_ chosen and the intent recorded (unless V_INTENT_AFTER) */
    atomic { take(i_,k_,n_,hit_) };
#ifdef V_INTENT_AFTER
    atomic { if :: hit_ -> rows[k_].ik = i_; rows[k_].ip = WPAR(i_,k_); rows[k_].ia = n_ :: else -> skip fi };
#endif
#ifdef V_COUNTER_FIRST
    atomic { if :: hit_ -> c = c-n_ :: else -> skip fi };
#endif
#ifdef V_SPLIT_FLIP
    atomic { if :: hit_ -> minus(k_,n_) :: else -> skip fi };
    atomic { rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0 };
#else
    atomic { CLOSEFOLD(k_); if :: hit_ -> minus(k_,n_) :: else -> skip fi; rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0 };
#endif
#ifndef V_COUNTER_FIRST
    atomic { if :: hit_ -> c = c-n_ :: else -> skip fi };
#endif
}
#ifdef V_INTENT_AFTER
#define RECORD(i,k,n) skip
#else
#define RECORD(i,k,n) record(i,k,n)
#endif

/* deposit: 1 the counter; 2 granted, seq, last and the intent in one flip; 3 the word, by a compare that covers all of it; 4 the intent is
   closed, and what could not be put there taken back, in one flip; 5 the counter; 6 the answer.  s_ 0: asked ahead, no record */
#define CLOSE(k_) rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0
#if NOWAIT
#define DEPONCE(k_,s_,l_) if :: s_!=0 -> assert(DEP(k_,l_)!=s_); DEP(k_,l_) = s_ :: else -> skip fi
#else
#define DEPONCE(k_,s_,l_) skip
#endif
#ifdef V_DEP_LAST_AMOUNT
#define DEPLAST n; LDEP(k,dl) = s
#elif defined(V_DEP_LAST_ZERO)
#define DEPLAST 0
#else
#define DEPLAST DEPOSITED
#endif
inline flipseq(k_,s_,l_) { if :: s_!=0 -> SEQ(k_,l_) = s_; LAST(k_,l_) = DEPLAST :: else -> skip fi }
inline depflip(k_,s_,n_,l_) {
#ifdef V_DEP_BEFORE_FLIP
    skip
#else
    rows[k_].g = rows[k_].g+n_; flipseq(k_,s_,l_);
#if !defined(V_DEP_NO_INTENT) && !defined(V_DEP_SPLIT)
    rows[k_].ik = DPS; rows[k_].ip = 1-rsv[k_].p; rows[k_].ia = n_
#endif
#endif
}
inline depword(k_,s_,n_,l_,hit_) {
#ifdef V_DEP_SPLIT
    atomic { rows[k_].ik = DPS; rows[k_].ip = 1-rsv[k_].p; rows[k_].ia = n_ };
#endif
#ifdef V_DEP_STORE
    atomic { if :: rsv[k_].key==k_ -> i = rsv[k_].b+n_; hit_ = 1 :: else -> hit_ = 0 fi };
    atomic { if :: hit_ -> rsv[k_].key = k_; rsv[k_].b = i; rsv[k_].p = 1-rsv[k_].p; DEPONCE(k_,s_,l_) :: else -> skip fi; i = 0 };
#else
    atomic {
        if
        :: DEPKEYOK(rsv[k_].key,k_) ->
            rsv[k_].b = rsv[k_].b+n_; hit_ = 1; DEPONCE(k_,s_,l_);
#ifndef V_DEP_NOPARITY
            rsv[k_].p = 1-rsv[k_].p
#endif
#if LOSE
        :: true -> hit_ = 0
#else
        :: else -> hit_ = 0
#endif
        fi
    };
#endif
}
inline depclose(k_,s_,n_,l_,hit_) {
#ifdef V_DEP_BEFORE_FLIP
    atomic { if :: hit_ -> rows[k_].g = rows[k_].g+n_ :: else -> skip fi; flipseq(k_,s_,l_) };
#elif defined(V_DEP_KEEP)
    atomic { CLOSE(k_); hit_ = 1 };
#else
    atomic { if :: !hit_ -> rows[k_].g = rows[k_].g-n_ :: else -> skip fi; CLOSE(k_) };
#endif
    atomic { if :: !hit_ -> c = c-n_ :: else -> skip fi; hit_ = 0 }
}
#ifdef V_DEP_OPEN_INTENT
#define MAYDEP(k_) true
#else
#define MAYDEP(k_) rows[k_].ik==0
#endif
inline settle(k_) {                 /* after a crash: the word's parity decides */
    atomic {
        if
#ifndef V_DEP_AS_STEAL
        :: rows[k_].ik==DPS ->      /* not in the word: it never will be */
#ifndef V_DEP_SETTLE_KEEP
            if :: rsv[k_].p!=rows[k_].ip -> r = rows[k_].ia; rows[k_].g = rows[k_].g-r :: else -> r = 0 fi;
#endif
            CLOSE(k_)
        :: rows[k_].ik!=0 && rows[k_].ik!=DPS ->
#else
        :: rows[k_].ik!=0 ->
#endif
            CLOSEFOLD(k_);
            if :: WPAR(rows[k_].ik,k_)==rows[k_].ip -> r = rows[k_].ia; minus(k_,rows[k_].ia) :: else -> r = 0 fi;
            rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0
        :: else -> r = 0
        fi
    };
    atomic { c = c-r; r = 0 }
}
inline giveback(k_) {               /* whole row of a key */
#ifdef V_COUNTER_FIRST
    atomic { r = rows[k_].g; c = c-r };
    atomic { rows[k_].g = 0; rows[k_].st = 2; rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0; ZERO_LAST(k_); r = 0 }
#else
    atomic { r = rows[k_].g; rows[k_].g = 0; rows[k_].st = 2; ZERO_LAST(k_); rows[k_].ik = 0; rows[k_].ip = 0; rows[k_].ia = 0 };
    atomic { c = c-r; r = 0 }
#endif
}
inline answer(ty_,k_,a_,s_,m_,l_) { atomic { if :: alive -> assert(nfull(ans)); ans!ty_,k_,a_,s_,m_ LF(l_) :: else -> skip fi } }

proctype Loop() {
    mtype ty; byte k, a, s, n, r; bit hit; byte i;
#if LANES==2
    bit dl;
#endif
endstart:
    {
end: do
    :: atomic { !gone && nempty(req) -> req?ty,k,a,s LF(dl) };
        if
        :: ty==RES ->
#ifdef V_EARLY_START
            sess = 1;
#endif
            settle(1);
#if NK==2
            settle(2);
#endif
            atomic { sess = 1; ty = REQ }
#if AHEAD
        :: ty==AHD && sess ->                               /* credit for an idle hand: what is there, once, or nothing */
            if
            :: AIDOK(rows[k].aid,a) && rows[k].st==1 && c+1<=LIMIT ->
                atomic { n = 1; c = c+n };
                atomic { if :: MAYDEP(k) -> depflip(k,0,n,0) :: else -> c = c-n; n = 0 fi };
                if :: n>0 -> depword(k,0,n,0,hit); depclose(k,0,n,0,hit) :: else -> skip fi
            :: true -> skip
            fi
#endif
        :: (ty==REQ || ty==NWT) && sess ->
            if
            :: (!AIDOK(rows[k].aid,a) || rows[k].st!=1) -> skip     /* an attachment that is no more: the client's record is gone too */
            :: (AIDOK(rows[k].aid,a) && rows[k].st==1 && s==SEQ(k,dl)) ->
#ifdef V_NOLAST
                answer(REQ,k,a,s,NEEDOF(dl),dl)
#else
#if TWICE==1
                if :: LAST(k,dl)==DEPOSITED && rows[k].ik==0 -> n = 1; depword(k,s,n,dl,hit); n = 0; hit = 0 :: else -> skip fi;
#elif TWICE==2
                if :: LAST(k,dl)==DEPOSITED && rows[k].ik==0 && c+1<=LIMIT -> goto anew :: else -> skip fi;
#endif
                answer((LAST(k,dl)==DEPOSITED -> DON : REQ),k,a,s,CARRIES(k,dl),dl)     /* the same answer */
#endif
            :: (AIDOK(rows[k].aid,a) && rows[k].st==1 && s<SEQ(k,dl)) -> skip       /* old */
            :: (rows[k].st==1 && s>SEQ(k,dl) && AIDOK(rows[k].aid,a)) ->
anew:           atomic {                                    /* counters first ... */
                    if
                    :: c+NEEDOF(dl)+BATCHOF(dl)<=LIMIT -> n = NEEDOF(dl)+BATCHOF(dl)
                    :: c+NEEDOF(dl)+BATCHOF(dl)>LIMIT && c+NEEDOF(dl)<=LIMIT -> n = NEEDOF(dl)
                    :: c+NEEDOF(dl)>LIMIT -> n = 0
                    fi;
                    c = c+n
                };
#if NOWAIT
                atomic { if :: ty==NWT && n>0 && MAYDEP(k) -> depflip(k,s,n,dl) :: else -> goto byanswer fi };
                depword(k,s,n,dl,hit);
                depclose(k,s,n,dl,hit);
#ifdef V_DEP_ANSWER_AMOUNT
                answer(REQ,k,a,s,n,dl);
#else
                answer(DON,k,a,s,0,dl);
#endif
                goto answered;
byanswer:
#endif
#ifdef V_GRANT_AFTER_ANSWER
                answer(REQ,k,a,s,n,dl);
#endif
#ifdef V_REFUSAL_UNREC
                atomic { if :: n>0 -> rows[k].g = rows[k].g+n; SEQ(k,dl) = s; LAST(k,dl) = n :: else -> skip fi };
#elif defined(V_LANE_SPLIT)
                atomic { rows[k].g = rows[k].g+n };
                atomic { SEQ(k,dl) = s; LAST(k,dl) = n };
#else
                atomic { rows[k].g = rows[k].g+n; SEQ(k,dl) = s; LAST(k,dl) = n };     /* ... then the row, refusals too ... */
#endif
#ifndef V_GRANT_AFTER_ANSWER
                answer(REQ,k,a,s,n,dl);                        /* ... then the answer */
#endif
            fi
        :: ty==DET && sess ->
            if
            :: (rows[k].st==1 && AIDOK(rows[k].aid,a)) ->
#ifdef V_DETACH_NOWAIT
                skip;
#else
#ifdef V_DETACH_CHECK
                rows[k].ik==0;
#else
                atomic { rows[k].ik==0 -> r = rows[k].g; rows[k].g = 0; rows[k].st = 2; ZERO_LAST(k) };     /* no intent open, in one step */
                atomic { c = c-r; r = 0; goto detached };
#endif
#endif
                giveback(k)
            :: else -> skip                                 /* done before: the same answer */
            fi;
detached:   answer(DET,k,a,0,0,0)
        :: ty==ATT && sess ->
            if
            :: (rows[k].st==1 && AIDOK(rows[k].aid,a)) -> skip
            :: else ->
                if
                :: rows[k].st==0 -> atomic { rows[k].aid = a; ZERO_SEQ(k); ZERO_LAST(k) ZERO_DEP(k); rows[k].g = 0; rows[k].st = 1; rows[k].prev = force[k] }
                :: !alive -> skip
                fi
            fi;
            answer(ATT,k,a,0,0,0)
        :: ty!=RES && !sess -> skip
        fi;
answered:
        atomic { ty = REQ; k = 0; a = 0; s = 0; n = 0 SETLANE(dl = 0) }
    :: atomic { !alive && !gone -> sess = 0; k = 1 };       /* pidfd: the session is released, row by row */
        do
        :: k<=NK ->
#ifndef V_RELEASE_NOWAIT
            !drin;                                          /* the drainer is out of this session */
#endif
            giveback(k); k++
        :: else -> break
        od;
        atomic { gone = 1; k = 0; do :: req?_,_,_,_ LF(_) :: empty(req) -> break od }
    /* steals from reserves (none in a session that is not resumed) */
    :: atomic { sess && rows[1].st==1 && rows[1].ik==0 && rsv[1].key==1 && rsv[1].b>0 -> k = 1;
            if :: n = rsv[1].b :: rsv[1].b>1 -> n = 1 fi; i = RSV; RECORD(RSV,1,n) };
        steal(i,k,n,hit); atomic { k = 0; n = 0; hit = 0; i = 0 }
#if NK==2
    :: atomic { sess && rows[2].st==1 && rows[2].ik==0 && rsv[2].key==2 && rsv[2].b>0 -> k = 2; n = rsv[2].b; i = RSV; RECORD(RSV,2,n) };
        steal(i,k,n,hit); atomic { k = 0; n = 0; hit = 0; i = 0 }
#endif
#ifdef V_TWO_INTENTS
    :: atomic { sess && slot[0].key!=0 && slot[0].b>0 && rows[slot[0].key].ik==0 && rows[slot[0].key].st==1 -> k = slot[0].key; n = slot[0].b; i = 1; RECORD(1,k,n) };
        steal(i,k,n,hit); atomic { k = 0; n = 0; hit = 0; i = 0 }
#endif
#if FORCE
    :: sess && force[1]>rows[1].prev ->
#ifdef V_PREV_SEPARATE
        atomic { k = force[1]; n = k-rows[1].prev; rows[1].g = rows[1].g+n; c = c+n }; atomic { rows[1].prev = k; k = 0; n = 0 }
#else
        atomic { fold(1) }
#endif
#endif
    /* session B: one that lives all the time */
    :: atomic { bops>0 && c+1<=LIMIT -> bops--; c++ }; rowB++
    :: atomic { bops>0 && rowB>0 -> bops--;
#ifdef V_COUNTER_FIRST
        c-- }; rowB--
#else
        rowB-- }; c--
#endif
    od
    } unless { !up };
    /* restart: only rows and words are left */
    atomic { !drin -> c = SUMROWS; gen++; ty = REQ; k = 0; a = 0; s = 0; n = 0; r = 0; hit = 0; i = 0 SETLANE(dl = 0); up = 1; goto endstart }
}

proctype Drainer() {
    byte k, n, i; bit hit;
endstart:
    {
end: do
    :: atomic { up && sess && !drin && slot[0].key!=0 && slot[0].b>0 && rows[slot[0].key].st==1 && rows[slot[0].key].ik==0 ->
            drin = 1; i = 1; k = slot[0].key; if :: n = slot[0].b :: slot[0].b>1 -> n = 1 fi; RECORD(i,k,n) };
        steal(i,k,n,hit); atomic { k = 0; n = 0; hit = 0; i = 0; drin = 0 }
#if NSLOT==2
    :: atomic { up && sess && !drin && slot[1].key!=0 && slot[1].b>0 && rows[slot[1].key].st==1 && rows[slot[1].key].ik==0 ->
            drin = 1; i = 2; k = slot[1].key; n = slot[1].b; RECORD(i,k,n) };
        steal(i,k,n,hit); atomic { k = 0; n = 0; hit = 0; i = 0; drin = 0 }
#endif
#if DETACH
    /* a dying key: no mover that began before; every slot freed of it; no mover that took it out of a slot */
#define QUIET1 (moving==0 || !alive)
#define QUIET2 (moving==0 || !alive)
#if defined(V_SCAN_ONLY) || defined(V_QUIET_LAST)
#undef QUIET1
#define QUIET1 true
#endif
#if defined(V_SCAN_ONLY) || defined(V_QUIET_FIRST)
#undef QUIET2
#define QUIET2 true
#endif
    :: atomic { up && sess && !drin && rows[1].st==2 && QUIET1 -> drin = 1 };
        do
        :: i<NSLOT -> atomic { if :: slot[i].key==1 -> slot[i].key = 0; slot[i].b = 0; slot[i].p = 1-slot[i].p :: else -> skip fi; i++ }
        :: else -> break
        od;
        QUIET2;
        atomic { if :: rows[1].st==2 && alive -> rows[1].st = 0 :: else -> skip fi };
        atomic { i = 0; drin = 0; if :: !alive -> goto dead :: else -> skip fi }
#endif
    od
    } unless { atomic { !up && drin -> k = 0; n = 0; i = 0; hit = 0; drin = 0 } };
    goto endstart;
dead: skip
}

proctype Crash() { end: do :: atomic { up && crashes>0 -> crashes--; up = 0; sess = 0; do :: req?_,_,_,_ LF(_) :: empty(req) -> break od } :: crashes==0 -> break od }
proctype Kill()  { end: atomic { kills && alive -> kills = 0; alive = 0; do :: ans?_,_,_,_,_ LF(_) :: empty(ans) -> break od } }

init {
    atomic {
        rows[1].st = 1; rows[1].aid = 1; caid[1] = 1; live[1] = 1; rsv[1].key = 1;
#if NK==2
        rows[2].st = 1; rows[2].aid = 1; caid[2] = 1; live[2] = 1; rsv[2].key = 2;
#endif
        run Loop(); run Drainer(); run Client(0);
#if NT==2
        run Client(1);
#endif
        run Crash(); run Kill()
    }
}
#else
/* ================================================================== PERSIST: one operation, two rows
 * The balance lies in the pool's persistent row P, the sequence and `previous` in the session's row S.  Two flips.  Repaired: the flip of P
 * decides and carries what S is to become {by, seq, prev}; S is written after it; a restart first writes S from P (redo, idempotent). */
#define NS 2
typedef SRow { byte seq; byte last; byte prev };
SRow S[NS];
byte Pg, Pby, Pseq, Pprev;
byte u[NS];                 /* cumulative words: persistent uncharges */
byte pheld;                 /* ghost */
bit up = 1; byte gen; byte crashes = CRASHES; byte c; byte done;
chan req = [6] of { byte, byte };
chan pans[NS] = [4] of { byte, byte };
active proctype Monitor() {
end: if
    :: Pg > LIMIT -> assert(false)
    :: timeout -> assert(up && done==NS && Pg==pheld)
    fi
}
proctype PClient(byte s) {
    byte ops = OPS, seq, conn, q, m;
    do
    :: ops>0 -> ops--;
        seq++;
again:  atomic { if :: up && conn==gen -> req!s,seq :: else -> skip fi };
wait:   if
        :: atomic { pans[s]?q,m -> if :: q==seq -> pheld = pheld+m; goto got :: else -> goto wait fi }
        :: atomic { up && conn!=gen -> conn = gen; if :: true -> do :: pans[s]?_,_ :: empty(pans[s]) -> break od :: true -> skip fi }; goto again
        fi;
got:    skip
    :: atomic { ops>0 && pheld>0 -> ops--; pheld--; u[s]++ }
    :: ops==0 -> break
    od;
    done++
}
inline redo() { atomic { if :: Pby!=0 -> if :: Pseq>S[Pby-1].seq -> S[Pby-1].last = 1; S[Pby-1].seq = Pseq :: else -> skip fi; S[Pby-1].prev = Pprev :: else -> skip fi } }
proctype PLoop() {
    byte s, q, n;
endstart:
    {
end: do
    :: atomic { nempty(req) -> req?s,q };
        if
        :: q==S[s].seq -> pans[s]!q,S[s].last
        :: q<S[s].seq -> skip
        :: q>S[s].seq && Pg<LIMIT ->
#ifdef V_PERSIST_2ROWS
            Pg++;
#else
            atomic { Pg++; Pby = s+1; Pseq = q; Pprev = S[s].prev };
#endif
            atomic { S[s].seq = q; S[s].last = 1 };
            pans[s]!q,1
        :: q>S[s].seq && Pg>=LIMIT ->
            atomic { S[s].seq = q; S[s].last = 0 }; pans[s]!q,0
        fi; atomic { s = 0; q = 0 }
    :: atomic { u[0]>S[0].prev -> s = 0; n = u[0] }; goto apply
    :: atomic { u[1]>S[1].prev -> s = 1; n = u[1] }; goto apply
    od;
apply:
#ifdef V_PERSIST_2ROWS
    Pg = Pg-(n-S[s].prev);
#else
    atomic { Pg = Pg-(n-S[s].prev); Pby = s+1; Pseq = S[s].seq; Pprev = n };
#endif
    S[s].prev = n; atomic { s = 0; n = 0; goto endstart }
    } unless { !up };
#ifndef V_PERSIST_2ROWS
    redo();
#endif
    atomic { gen++; s = 0; q = 0; n = 0; up = 1; goto endstart }
}
proctype Crash() { end: do :: atomic { up && crashes>0 -> crashes--; up = 0; do :: req?_,_ :: empty(req) -> break od } :: crashes==0 -> break od }
init { atomic { run PLoop(); run PClient(0); run PClient(1); run Crash() } }
#endif
