------------------------------- MODULE Batches -------------------------------
(* Plan, run, receipt, verdict, publication: what the processes of one pipeline do to its store and its result tables.

   A step of an actor is one call of the store or of a table's log. Between two steps any other actor may act, so each
   is a zombie to the others. An actor that crashes forgets all but the store; so does one whose answer is lost, and
   then the call may have been carried out or not. `Dropped` names a guard that is left out: with "none" all properties
   hold, and with each other one a property fails. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS Actors, Survivor, Tables, LastBatch, Records, LastRun, Crashes, Losses, Does, Dropped

VARIABLES landed, plans, receipts, files, made, verdicts, logs, commits, swaps, swapped, crashes, losses, at, has

store == <<landed, plans, receipts, files, made, verdicts, logs, commits, swaps, swapped>>
vars == <<store, crashes, losses, at, has>>

None == [is |-> "none"]
Batch == 0..LastBatch
Guard(name) == Dropped # name

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Is(document, kind) == document.is = kind

Planned == {b \in Batch : plans[b] # None}
Published == {b \in Batch : Is(verdicts[b], "publish")}
Before(b) == {p \in Published : p < b}
EndBefore(b) == IF Before(b) = {} THEN 0 ELSE LET p == Max(Before(b)) IN made[verdicts[p].run].hi
StateBefore(b) == IF Before(b) = {} THEN 0 ELSE verdicts[Max(Before(b))].run

Entries(t) == {logs[t][i] : i \in 1..Len(logs[t])}
BatchIn(t, b) == \E e \in Entries(t) : e.is = "batch" /\ e.batch >= b
SwapIn(t, n) == \E e \in Entries(t) : e.is = "swap" /\ e.number >= n
\* The run whose rows of a batch readers see.
Seen(t, b) == LET of == {i \in 1..Len(logs[t]) : logs[t][i].batch = b}
              IN IF of = {} THEN 0 ELSE logs[t][Max(of)].run

Nothing == [batch |-> 0, lo |-> 0, hi |-> 0, run |-> 0, base |-> 0, todo |-> {}, seen |-> 0, number |-> 0]

Init ==
    /\ landed = 0
    /\ plans = [b \in Batch |-> None]
    /\ receipts = [b \in Batch |-> 0]
    /\ files = {}
    /\ made = [r \in {} |-> Nothing]
    /\ verdicts = [b \in Batch |-> None]
    /\ logs = [t \in Tables |-> <<>>]
    /\ commits = {}
    /\ swaps = <<>>
    /\ swapped = 0
    /\ crashes = Crashes
    /\ losses = Losses
    /\ at = [a \in Actors |-> "idle"]
    /\ has = [a \in Actors |-> Nothing]

Go(a, where, what) == at' = [at EXCEPT ![a] = where] /\ has' = [has EXCEPT ![a] = what]
Same == UNCHANGED <<crashes, losses>>
\* The call was carried out, and its answer came or was lost.
Called(a, where, what) ==
    \/ Go(a, where, what) /\ Same
    \/ losses > 0 /\ losses' = losses - 1 /\ Go(a, "idle", Nothing) /\ UNCHANGED crashes

Land == landed < Records /\ landed' = landed + 1
        /\ UNCHANGED <<plans, receipts, files, made, verdicts, logs, commits, swaps, swapped, at, has>> /\ Same

Crash(a) == at[a] # "idle" /\ crashes > 0 /\ crashes' = crashes - 1 /\ Go(a, "idle", Nothing)
            /\ UNCHANGED <<store, losses>>

-------------------------------------------------------------------------------
\* An actor looks where the pipeline stands, and goes on from there, whoever began.

Open(b) == plans[b] # None /\ verdicts[b] = None
Undone(b) == Is(verdicts[b], "publish") /\ b \notin commits
Next(a) == IF Planned = {} THEN 0 ELSE Max(Planned) + 1
From(b) == IF Guard("ends-of-published") \/ b = 0 THEN EndBefore(b) ELSE plans[b - 1].hi

Look(a) ==
    /\ at[a] = "idle"
    /\ UNCHANGED store /\ Same
    /\ IF Len(swaps) > swapped /\ Guard("swap-is-finished")
       THEN Go(a, "swap", [Nothing EXCEPT !.number = Len(swaps), !.todo = Tables])
       ELSE IF Planned # {} /\ Open(Max(Planned))
       THEN LET b == Max(Planned) IN
            /\ Guard("open-batch-is-taken-over") \/ plans[b].by = a
            /\ Go(a, "run", [Nothing EXCEPT !.batch = b])
       ELSE IF Planned # {} /\ Undone(Max(Planned))
       THEN Go(a, "publish", [Nothing EXCEPT !.batch = Max(Planned), !.run = verdicts[Max(Planned)].run, !.todo = Tables])
       ELSE /\ Next(a) \in Batch
            /\ From(Next(a)) < landed
            /\ Go(a, "plan", [Nothing EXCEPT !.batch = Next(a), !.lo = From(Next(a)), !.hi = landed])

Plan(a) ==
    /\ at[a] = "plan"
    /\ LET b == has[a].batch
           mine == [is |-> "plan", lo |-> has[a].lo, hi |-> has[a].hi, by |-> a] IN
       /\ plans' = IF plans[b] = None \/ ~Guard("plan-stays") THEN [plans EXCEPT ![b] = mine] ELSE plans
       /\ Called(a, "run", [Nothing EXCEPT !.batch = b])
    /\ UNCHANGED <<landed, receipts, files, made, verdicts, logs, commits, swaps, swapped>>

Run(a) ==
    /\ at[a] = "run"
    /\ LET b == has[a].batch IN
       IF verdicts[b] # None
       THEN Go(a, "idle", Nothing)
       ELSE IF receipts[b] # 0
       THEN Go(a, "check", [has[a] EXCEPT !.run = receipts[b]])
       ELSE Go(a, "tasks", has[a])
    /\ UNCHANGED store /\ Same

\* One run more: its files are there.
Made(r, run) == /\ r = Cardinality(DOMAIN made) + 1 /\ r <= LastRun
                /\ made' = [x \in DOMAIN made \cup {r} |-> IF x = r THEN run ELSE made[x]]
                /\ files' = files \cup {r}

\* The tasks of all groups: they read what the plan says, and leave files and state of this run.
Tasks(a) ==
    /\ at[a] = "tasks"
    /\ LET b == has[a].batch  r == Cardinality(DOMAIN made) + 1
           others == {x \in DOMAIN made : made[x].batch < b} IN
       /\ Made(r, [batch |-> b, lo |-> plans[b].lo, hi |-> plans[b].hi, again |-> FALSE,
                   base |-> IF Guard("state-of-published") THEN StateBefore(b)
                            ELSE IF others = {} THEN 0 ELSE Max(others)])
       /\ Go(a, "receipt", [has[a] EXCEPT !.run = r])
    /\ UNCHANGED <<landed, plans, receipts, verdicts, logs, commits, swaps, swapped>> /\ Same

Receipt(a) ==
    /\ at[a] = "receipt"
    /\ LET b == has[a].batch IN
       receipts' = IF receipts[b] = 0 THEN [receipts EXCEPT ![b] = has[a].run] ELSE receipts
    /\ Called(a, "check", has[a])
    /\ UNCHANGED <<landed, plans, files, made, verdicts, logs, commits, swaps, swapped>>

\* The proof: of the run whose receipt is there, by the plan that is stored.
Check(a) ==
    /\ at[a] = "check"
    /\ LET r == receipts[has[a].batch]  b == has[a].batch IN
       IF r \in files /\ made[r].lo = plans[b].lo /\ made[r].hi = plans[b].hi
       THEN Go(a, "decide", [has[a] EXCEPT !.run = r])
       ELSE Go(a, "idle", Nothing)
    /\ UNCHANGED store /\ Same

\* The proof refuses a run, as a file has changed: the next run is another attempt of the same plan.
Refuse(a) ==
    /\ "refuse" \in Does /\ at[a] = "check" /\ verdicts[has[a].batch] = None
    /\ receipts' = [receipts EXCEPT ![has[a].batch] = 0]
    /\ Go(a, "idle", Nothing)
    /\ UNCHANGED <<landed, plans, files, made, verdicts, logs, commits, swaps, swapped>> /\ Same

Decide(a) ==
    /\ at[a] = "decide"
    /\ LET b == has[a].batch
           mine == [is |-> "publish", run |-> has[a].run]
           there == verdicts[b]
           puts == there = None \/ ~Guard("verdict-stays")
           now == IF puts THEN mine ELSE there IN
       /\ verdicts' = [verdicts EXCEPT ![b] = now]
       /\ IF ~puts /\ ~Guard("verdict-is-read-back")
          THEN Go(a, "stuck", Nothing) /\ Same
          ELSE IF Is(now, "publish") \/ ~Guard("verdict-is-obeyed")
          THEN Called(a, "publish", [has[a] EXCEPT !.todo = Tables, !.run = IF Is(now, "publish") THEN now.run ELSE @])
          ELSE Go(a, "idle", Nothing) /\ Same
    /\ UNCHANGED <<landed, plans, receipts, files, made, logs, commits, swaps, swapped>>

\* An operator gives the open batch up; its records go into the next.
Abandon ==
    /\ "abandon" \in Does
    /\ \E b \in Planned :
       /\ b = Max(Planned)
       /\ verdicts[b] = None \/ (~Guard("decided-is-not-abandoned") /\ b \notin commits /\ ~Is(verdicts[b], "abandon"))
       /\ verdicts' = [verdicts EXCEPT ![b] = [is |-> "abandon", run |-> 0]]
    /\ UNCHANGED <<landed, plans, receipts, files, made, logs, commits, swaps, swapped, at, has>> /\ Same

-------------------------------------------------------------------------------
\* Publication: one commit to the log of each table, put if absent as the version after the one that was read.

Publish(a) ==
    /\ at[a] = "publish"
    /\ UNCHANGED store /\ Same
    /\ LET left == has[a].todo IN
       IF left = {} \/ (Cardinality(left) < Cardinality(Tables) /\ ~Guard("all-tables"))
       THEN Go(a, "commit", has[a])
       ELSE LET t == CHOOSE t \in left : TRUE IN
            IF BatchIn(t, has[a].batch) /\ Guard("log-is-asked")
            THEN Go(a, "publish", [has[a] EXCEPT !.todo = left \ {t}])
            ELSE Go(a, "append", [has[a] EXCEPT !.seen = Len(logs[t])])

\* A swap that was decided meanwhile comes first.
Finish(a) == at[a] = "publish" /\ Len(swaps) > swapped /\ UNCHANGED store /\ Same
             /\ Go(a, "swap", [Nothing EXCEPT !.number = Len(swaps), !.todo = Tables])

Append1(a) ==
    /\ at[a] = "append"
    /\ LET left == has[a].todo  t == CHOOSE t \in left : TRUE
           r == IF Guard("verdict-names-the-run") THEN has[a].run ELSE receipts[has[a].batch] IN
       IF Len(logs[t]) = has[a].seen \/ ~Guard("commit-is-conditional")
       THEN /\ logs' = [logs EXCEPT ![t] = Append(@, [is |-> "batch", batch |-> has[a].batch, run |-> r, number |-> 0])]
            /\ Called(a, "publish", [has[a] EXCEPT !.todo = left \ {t}])
       ELSE Go(a, "publish", has[a]) /\ UNCHANGED logs /\ Same
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, commits, swaps, swapped>>

Commit(a) ==
    /\ at[a] = "commit"
    /\ commits' = commits \cup {has[a].batch}
    /\ Called(a, "idle", Nothing)
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, logs, swaps, swapped>>

-------------------------------------------------------------------------------
\* Cleaning: the files of runs that no verdict names, and that are no backfill's.

Named(r) == made[r].again \/ \E b \in Batch : Is(verdicts[b], "publish") /\ verdicts[b].run = r

Clean ==
    /\ "clean" \in Does
    /\ \E r \in files :
       /\ IF Guard("named-files-stay") THEN ~Named(r) ELSE made[r].batch \notin commits
       /\ verdicts[made[r].batch] # None \/ ~Guard("open-batch-is-not-cleaned")
       /\ files' = files \ {r}
    /\ UNCHANGED <<landed, plans, receipts, made, verdicts, logs, commits, swaps, swapped, at, has>> /\ Same

-------------------------------------------------------------------------------
\* A backfill runs a published batch again. Somebody decides to put its rows in place, and to take that back: swaps by
\* number.

Again == {r \in DOMAIN made : made[r].again}

Backfill ==
    /\ "swap" \in Does /\ Again = {}
    /\ \E b \in commits :
       Made(Cardinality(DOMAIN made) + 1, [made[verdicts[b].run] EXCEPT !.again = TRUE])
    /\ UNCHANGED <<landed, plans, receipts, verdicts, logs, commits, swaps, swapped, at, has>> /\ Same

Turn(a) ==
    /\ at[a] = "idle" /\ Len(swaps) = 0
    /\ \E r \in Again :
       /\ swaps' = <<[batch |-> made[r].batch, run |-> r]>>
       /\ Called(a, "swap", [Nothing EXCEPT !.number = 1, !.todo = Tables])
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, logs, commits, swapped>>

Undo(a) ==
    /\ at[a] = "idle" /\ Len(swaps) = 1 /\ swapped = 1
    /\ swaps' = Append(swaps, [batch |-> swaps[1].batch, run |-> verdicts[swaps[1].batch].run])
    /\ Called(a, "swap", [Nothing EXCEPT !.number = 2, !.todo = Tables])
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, logs, commits, swapped>>

Swap(a) ==
    /\ at[a] = "swap"
    /\ UNCHANGED store /\ Same
    /\ LET left == has[a].todo IN
       IF left = {} THEN Go(a, "swapped", has[a])
       ELSE LET t == CHOOSE t \in left : TRUE IN
            IF SwapIn(t, has[a].number) /\ Guard("newer-swap-stays")
            THEN Go(a, "swap", [has[a] EXCEPT !.todo = left \ {t}])
            ELSE Go(a, "exchange", [has[a] EXCEPT !.seen = Len(logs[t])])

Exchange(a) ==
    /\ at[a] = "exchange"
    /\ LET left == has[a].todo  t == CHOOSE t \in left : TRUE  n == has[a].number IN
       IF Len(logs[t]) = has[a].seen
       THEN /\ logs' = [logs EXCEPT ![t] =
                 Append(@, [is |-> "swap", batch |-> swaps[n].batch, run |-> swaps[n].run, number |-> n])]
            /\ Called(a, "swap", [has[a] EXCEPT !.todo = left \ {t}])
       ELSE Go(a, "swap", has[a]) /\ UNCHANGED logs /\ Same
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, commits, swaps, swapped>>

Swapped(a) ==
    /\ at[a] = "swapped"
    /\ swapped' = IF swapped < has[a].number THEN has[a].number ELSE swapped
    /\ Called(a, "idle", Nothing)
    /\ UNCHANGED <<landed, plans, receipts, files, made, verdicts, logs, commits, swaps>>

-------------------------------------------------------------------------------
Step(a) == Look(a) \/ Plan(a) \/ Run(a) \/ Tasks(a) \/ Receipt(a) \/ Check(a) \/ Decide(a) \/ Publish(a) \/ Finish(a) \/ Append1(a)
           \/ Commit(a) \/ Swap(a) \/ Exchange(a) \/ Swapped(a)
\* What it may do beside, and what others do.
May(a) == Refuse(a) \/ Turn(a) \/ Undo(a)
Others == Land \/ Abandon \/ Clean \/ Backfill

Act == Others \/ \E a \in Actors : Step(a) \/ May(a) \/ Crash(a)

Spec == Init /\ [][Act]_vars
\* One actor goes on; the others may stop anywhere, for ever.
Fair == Spec /\ WF_vars(Step(Survivor)) /\ WF_vars(Land)

-------------------------------------------------------------------------------
Rows(e) == made[e.run].lo..(made[e.run].hi - 1)

\* No record is in a table twice.
Once == \A t \in Tables : \A i, j \in 1..Len(logs[t]) :
    (i < j /\ logs[t][i].is = "batch" /\ logs[t][j].is = "batch") => Rows(logs[t][i]) \cap Rows(logs[t][j]) = {}

\* What a batch has published, all tables have, with all records before its end.
Whole == \A b \in commits : \A t \in Tables : \A record \in 0..(plans[b].hi - 1) :
    \E e \in Entries(t) : e.is = "batch" /\ e.batch <= b /\ record \in Rows(e)

\* Only what was judged is published.
Judged == \A t \in Tables : \A e \in Entries(t) :
    e.is = "batch" => Is(verdicts[e.batch], "publish") /\ verdicts[e.batch].run = e.run

\* The files of what is or will be published are there.
Held == \A r \in DOMAIN made : (Named(r) \/ \E t \in Tables : \E b \in Batch : Seen(t, b) = r) => r \in files

\* Totals go on from those of the last batch that was published.
GoesOn == \A b \in commits : made[verdicts[b].run].base = StateBefore(b)

\* Readers see of a batch what was decided last, once that is done.
AsDecided == (swapped > 0 /\ swapped = Len(swaps)) =>
    \A t \in Tables : Seen(t, swaps[swapped].batch) = swaps[swapped].run

\* What is decided stays decided.
PlanStays == [][\A b \in Batch : plans[b] # None => plans'[b] = plans[b]]_vars
VerdictStays == [][\A b \in Batch : verdicts[b] # None => verdicts'[b] = verdicts[b]]_vars

\* All records that land are published.
Progress == <>(\E b \in commits : plans[b].hi = Records)
\* What was decided of a swap becomes true.
SwapEnds == [](Len(swaps) > 0 => <>(swapped = Len(swaps)))
=============================================================================
