------------------------------- MODULE Traces -------------------------------
(* What the real code did in many schedules, as a tree: each event comes after one other. `Observed` has who acted in
   each, and what was stored then. The specification goes down all branches where it can, with steps between that nobody
   sees. An actor's next step depends on the store and on itself alone. So one actor at a time, `who`, has to do what
   the specification says, and the others do what they did: an event is accepted if each actor was let through to it. *)
EXTENDS Batches, Observed, TLC

VARIABLES event, who

\* What is stored after an event of `by`. What nobody sees of it, the specification says.
Becomes(s, by) ==
    /\ landed' = s.landed
    /\ plans' = [b \in Batch |-> LET p == s.plans[b + 1] IN IF p = <<>> THEN None ELSE
         [is |-> "plan", lo |-> p[1], hi |-> p[2], by |-> IF plans[b] = None THEN by ELSE plans[b].by]]
    /\ receipts' = [b \in Batch |-> s.receipts[b + 1]]
    /\ files' = s.files
    /\ made' = [r \in DOMAIN s.made |-> LET m == s.made[r] IN
         [batch |-> m[1], lo |-> m[2], hi |-> m[3], again |-> m[4],
          base |-> IF r \in DOMAIN made THEN made[r].base ELSE StateBefore(m[1])]]
    /\ verdicts' = [b \in Batch |-> LET v == s.verdicts[b + 1] IN
         IF v = <<>> THEN None ELSE [is |-> v[1], run |-> v[2]]]
    /\ logs' = [t \in Tables |-> [i \in DOMAIN s.logs[t] |-> LET e == s.logs[t][i] IN
         [is |-> e[1], batch |-> e[2], run |-> e[3], number |-> e[4]]]]
    /\ commits' = s.commits
    /\ swaps' = [n \in DOMAIN s.swaps |-> [batch |-> s.swaps[n][1], run |-> s.swaps[n][2]]]
    /\ swapped' = s.swapped

Begin == Init /\ event = 1 /\ who \in Actors

Unseen == who \in StillActs[event] /\ Step(who) /\ UNCHANGED <<store, event, who>>

Observable == \E e \in After[event] :
    /\ IF By[e] = 0 THEN Others ELSE IF By[e] = who THEN Step(who) \/ May(who) ELSE UNCHANGED <<crashes, losses, at, has>>
    /\ Becomes(Different[Which[e]], By[e])
    /\ event' = e
    /\ UNCHANGED who

Traced == Begin /\ [][Unseen \/ Observable]_<<vars, event, who>>

Told == /\ TLCGet(event * 9 + who) \/ (TLCSet(event * 9 + who, TRUE) /\ PrintT(<<"accepted", event, who>>))
        /\ event \in Asked => PrintT(<<"at", event, who, at[who]>>)
ASSUME \A n \in 9..(Len(By) * 9 + 8) : TLCSet(n, FALSE)
=============================================================================
