; What kernels call at run time: parallel loops. Compiled once per process, or into each object that is made ahead of time.
;
; A pool of threads that wait for work. A parallel loop hands each worker a pointer to the job (on the caller's stack)
; through the worker's own slot, takes part itself and waits until all are done. Workers spin for a moment after each
; job, so that kernels in a row start within a microsecond, and then sleep. Only one loop uses the pool at a time; another
; caller meanwhile runs its loop alone. After a fork the child has none of the threads: the first loop there starts the
; pool anew.
;
; The caller waits even for a worker that comes too late to take a task. Calling it back instead was tried: the caller
; then does all the work, and the system sees no reason to move a worker that shares its processor to an idle one.
;
; OpenMP is not used: a process that has used libgomp's threads and then forks has a child that hangs at its first parallel
; region, and users fork, as data loaders do. A static split of the iterations would wait for the slower part when something
; else runs on a core.

; function, context, tasks, threads, workers not yet done, the caller's processor, padding, first task not yet taken
%job = type { ptr, ptr, i64, i64, i64, i32, [20 x i8], i64 }
%slot = type { ptr, i32, i32, i64, [104 x i8], [64 x i8], [64 x i8] } ; job or null, asleep, pad, number, pad, mutex, condition

@slots = internal global [256 x %slot] zeroinitializer, align 64
@started = internal global i64 0, align 64       ; workers that run
@parts = internal global i64 0, align 64         ; of the current or last loop
@busy = internal global i32 0, align 64          ; 1 while a loop uses the pool
@owner = internal global i32 0, align 64         ; the process that started the workers; -1 while that is being set
@available = internal global i64 0, align 64     ; processors that the process could run on when it took the pool over

declare i32 @getpid() nounwind
declare i32 @sched_yield() nounwind
declare i32 @clock_gettime(i32, ptr) nounwind
declare i32 @pthread_create(ptr, ptr, ptr, ptr) nounwind
declare i32 @pthread_detach(i64) nounwind
declare i32 @pthread_mutex_init(ptr, ptr) nounwind
declare i32 @pthread_mutex_lock(ptr) nounwind
declare i32 @pthread_mutex_unlock(ptr) nounwind
declare i32 @pthread_cond_init(ptr, ptr) nounwind
declare i32 @pthread_cond_wait(ptr, ptr) nounwind
declare i32 @pthread_cond_signal(ptr) nounwind

; Nanoseconds of a clock that only goes forward.
define internal i64 @now() nounwind {
  %t = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 CLOCK_MONOTONIC, ptr %t)
  %s = load i64, ptr %t
  %n.p = getelementptr { i64, i64 }, ptr %t, i64 0, i32 1
  %n = load i64, ptr %n.p
  %s.n = mul i64 %s, 1000000000
  %out = add i64 %s.n, %n
  ret i64 %out
}

; Whether the threads of the current or last loop have to share processors.
define internal i1 @crowded() nounwind {
  %n = load atomic i64, ptr @parts monotonic, align 8
  %processors = load atomic i64, ptr @available monotonic, align 8
  %out = icmp ugt i64 %n, %processors
  ret i1 %out
}

; Tasks of a job, as worker `number`, until none is left. Each bite is a share of what is left, large at first, so that a
; thread that loses its processor for a while leaves its work to the others.
define internal void @run(ptr %job, i64 %number) nounwind {
entry:
  %fn = load ptr, ptr %job
  %context.p = getelementptr %job, ptr %job, i64 0, i32 1
  %context = load ptr, ptr %context.p
  %tasks.p = getelementptr %job, ptr %job, i64 0, i32 2
  %tasks = load i64, ptr %tasks.p
  %parts.p = getelementptr %job, ptr %job, i64 0, i32 3
  %parts = load i64, ptr %parts.p
  %shares = shl i64 %parts, 1
  %next = getelementptr %job, ptr %job, i64 0, i32 7
  br label %look
look:
  %begin = load atomic i64, ptr %next monotonic, align 8
  %left = sub i64 %tasks, %begin
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %bite, label %done
bite:
  %share = udiv i64 %left, %shares
  %size = call i64 @llvm.umax.i64(i64 %share, i64 1)
  %end = add i64 %begin, %size
  %pair = cmpxchg ptr %next, i64 %begin, i64 %end monotonic monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %chew, label %look
chew:
  call void %fn(ptr %context, i64 %begin, i64 %end, i64 %number)
  br label %look
done:
  ret void
}

declare i64 @llvm.umax.i64(i64, i64)

; The next job of a slot: spins for 1.5 ms, then sleeps until one comes.
define internal ptr @await(ptr %slot) nounwind {
entry:
  %asleep = getelementptr %slot, ptr %slot, i64 0, i32 1
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  %from = call i64 @now()
  br label %spin
spin:
  %count = phi i64 [ 0, %entry ], [ %count.next, %again ], [ %count.next, %share ], [ %count.next, %give ]
  %job = load atomic ptr, ptr %slot acquire, align 8
  %none = icmp eq ptr %job, null
  br i1 %none, label %again, label %found
again:
  call void @pause()
  %count.next = add i64 %count, 1
  %low = and i64 %count.next, 63
  %due = icmp eq i64 %low, 0
  br i1 %due, label %look, label %spin
look:
  %t = call i64 @now()
  %idle = sub i64 %t, %from
  %tired = icmp ugt i64 %idle, 1500000
  br i1 %tired, label %rest, label %share
share:
  %crowded = call i1 @crowded()
  br i1 %crowded, label %give, label %spin
give:
  %y = call i32 @sched_yield()
  br label %spin
found:
  ret ptr %job
rest:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  ; Either the poster sees that we sleep, or we see its job: both sides store, then load, in one order for all.
  store atomic i32 1, ptr %asleep seq_cst, align 4
  br label %check
check:
  %job2 = load atomic ptr, ptr %slot seq_cst, align 8
  %none2 = icmp eq ptr %job2, null
  br i1 %none2, label %wait, label %woken
wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
woken:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret ptr %job2
}

define internal ptr @worker(ptr %slot) nounwind {
entry:
  %number.p = getelementptr %slot, ptr %slot, i64 0, i32 3
  %number = load i64, ptr %number.p
  br label %loop
loop:
  %job = call ptr @await(ptr %slot)
  %theirs.p = getelementptr %job, ptr %job, i64 0, i32 5
  %theirs = load i32, ptr %theirs.p
  %ours = call i32 @processor()
  %same = icmp eq i32 %ours, %theirs
  %crowded = call i1 @crowded()
  %room = xor i1 %crowded, true
  %away = and i1 %same, %room
  br i1 %away, label %move, label %work
move:
  call void @move_from(i32 %ours)
  br label %work
work:
  call void @run(ptr %job, i64 %number)
  ; Free the slot before the caller may know that we are done: it posts the next job without looking.
  store atomic ptr null, ptr %slot release, align 8
  %left = getelementptr %job, ptr %job, i64 0, i32 4
  %old = atomicrmw sub ptr %left, i64 1 release
  br label %loop
}

define internal void @post(ptr %slot, ptr %job) nounwind {
  store atomic ptr %job, ptr %slot seq_cst, align 8
  %asleep.p = getelementptr %slot, ptr %slot, i64 0, i32 1
  %asleep = load atomic i32, ptr %asleep.p seq_cst, align 4
  %awake = icmp eq i32 %asleep, 0
  br i1 %awake, label %done, label %wake
wake:
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %s = call i32 @pthread_cond_signal(ptr %condition)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %done
done:
  ret void
}

; Start workers until there are `want`; how many there are.
define internal i64 @start(i64 %want) nounwind {
entry:
  %thread = alloca i64
  br label %loop
loop:
  %n = load i64, ptr @started
  %enough = icmp uge i64 %n, %want
  br i1 %enough, label %done, label %more
more:
  %slot = getelementptr [256 x %slot], ptr @slots, i64 0, i64 %n
  store %slot zeroinitializer, ptr %slot
  %number.p = getelementptr %slot, ptr %slot, i64 0, i32 3
  %next = add i64 %n, 1
  store i64 %next, ptr %number.p
  %mutex = getelementptr %slot, ptr %slot, i64 0, i32 5
  %condition = getelementptr %slot, ptr %slot, i64 0, i32 6
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %c = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %slot)
  %failed = icmp ne i32 %c, 0
  br i1 %failed, label %done, label %created
created:
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  store atomic i64 %next, ptr @started monotonic, align 8
  br label %loop
done:
  %out = load i64, ptr @started
  ret i64 %out
}

; Whether the pool belongs to this process; takes it over after a fork.
define internal i1 @own() nounwind {
entry:
  %pid = call i32 @getpid()
  %seen = load atomic i32, ptr @owner acquire, align 4
  %mine = icmp eq i32 %seen, %pid
  br i1 %mine, label %yes, label %other
other:
  %setting = icmp eq i32 %seen, -1
  br i1 %setting, label %no, label %take
take:
  %pair = cmpxchg ptr @owner, i32 %seen, i32 -1 acq_rel monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %reset, label %no
reset:
  %processors = call i64 @processors()
  store atomic i64 %processors, ptr @available monotonic, align 8
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i32 0, ptr @busy monotonic, align 4
  store atomic i32 %pid, ptr @owner release, align 4
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define void @tensorc_parallel_for(ptr %fn, ptr %context, i64 %tasks, i64 %threads) nounwind {
entry:
  %job = alloca %job, align 64
  %some = call i64 @llvm.umin.i64(i64 %threads, i64 %tasks)
  %want = call i64 @llvm.umin.i64(i64 %some, i64 256)
  %single = icmp ule i64 %want, 1
  br i1 %single, label %alone, label %try
try:
  %ours = call i1 @own()
  br i1 %ours, label %lock, label %alone
lock:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %enter, label %alone
enter:
  %others = sub i64 %want, 1
  %have = call i64 @start(i64 %others)
  %workers = call i64 @llvm.umin.i64(i64 %have, i64 %others)
  %parts = add i64 %workers, 1
  store atomic i64 %parts, ptr @parts monotonic, align 8
  store ptr %fn, ptr %job
  %context.p = getelementptr %job, ptr %job, i64 0, i32 1
  store ptr %context, ptr %context.p
  %tasks.p = getelementptr %job, ptr %job, i64 0, i32 2
  store i64 %tasks, ptr %tasks.p
  %parts.p = getelementptr %job, ptr %job, i64 0, i32 3
  store i64 %parts, ptr %parts.p
  %left = getelementptr %job, ptr %job, i64 0, i32 4
  store atomic i64 %workers, ptr %left monotonic, align 8
  %next = getelementptr %job, ptr %job, i64 0, i32 7
  store atomic i64 0, ptr %next monotonic, align 8
  %here.p = getelementptr %job, ptr %job, i64 0, i32 5
  %here = call i32 @processor()
  store i32 %here, ptr %here.p
  %any = icmp ugt i64 %workers, 0
  br i1 %any, label %hand, label %own.part
hand:
  %k = phi i64 [ 0, %enter ], [ %k.next, %hand ]
  %slot = getelementptr [256 x %slot], ptr @slots, i64 0, i64 %k
  call void @post(ptr %slot, ptr %job)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %workers
  br i1 %more, label %hand, label %own.part
own.part:
  %crowded = call i1 @crowded()
  %patience = select i1 %crowded, i64 64, i64 20000
  call void @run(ptr %job, i64 0)
  br label %join
join:
  %spins = phi i64 [ 0, %own.part ], [ %spins.next, %patient ], [ %spins.next, %yield ]
  %open = load atomic i64, ptr %left acquire, align 8
  %done = icmp eq i64 %open, 0
  br i1 %done, label %leave, label %wait
wait:
  call void @pause()
  %spins.next = add i64 %spins, 1
  ; A worker that is this late has probably lost its processor: let it have ours. Not sooner, unless there are more threads
  ; than processors: a thread that yields and yields is not moved to an idle processor.
  %late = icmp ugt i64 %spins, %patience
  br i1 %late, label %yield, label %patient
patient:
  br label %join
yield:
  %y = call i32 @sched_yield()
  br label %join
leave:
  store atomic i32 0, ptr @busy release, align 4
  ret void
alone:
  call void %fn(ptr %context, i64 0, i64 %tasks, i64 0)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
