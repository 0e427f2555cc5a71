; A stopwatch for kernels, beside the pool that they run on.

; Run a kernel `repeats` times; out[k] is the length of run k in nanoseconds. There are `count` blocks of `stride` bytes of
; arguments, which runs take in turn, the block `first` first.
define void @tensorc_time(ptr %kernel, ptr %arguments, ptr %workspace, i64 %repeats, ptr %out,
                          i64 %stride, i64 %count, i64 %first) nounwind {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]
  %position = add i64 %k, %first
  %block = urem i64 %position, %count
  %offset = mul i64 %block, %stride
  %these = getelementptr i8, ptr %arguments, i64 %offset
  %from = call i64 @now()
  call void %kernel(ptr %these, ptr %workspace)
  %to = call i64 @now()
  %length = sub i64 %to, %from
  %place = getelementptr i64, ptr %out, i64 %k
  store i64 %length, ptr %place
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %repeats
  br i1 %more, label %loop, label %done
done:
  ret void
}

; An empty task, to measure what starting and joining costs.
define void @tensorc_empty(ptr %context, i64 %begin, i64 %end, i64 %worker) nounwind {
  ret void
}

define void @tensorc_empty_loop(ptr %threads, ptr %workspace) nounwind {
  %n = load i64, ptr %threads
  call void @tensorc_parallel_for(ptr @tensorc_empty, ptr null, i64 %n, i64 %n)
  ret void
}

; The first `count` calls of a run of a model; out[k] is the length of call k in nanoseconds.
define void @tensorc_time_calls(ptr %arguments, ptr %workspace, i64 %count, ptr %out) nounwind {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %step ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %step, label %done
step:
  %from = call i64 @now()
  call void @tensorc_call_at(ptr %arguments, ptr %workspace, i64 %k)
  %to = call i64 @now()
  %length = sub i64 %to, %from
  %place = getelementptr i64, ptr %out, i64 %k
  store i64 %length, ptr %place
  %k.next = add i64 %k, 1
  br label %loop
done:
  ret void
}
