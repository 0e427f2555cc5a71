; The calls of a model, one after the other. Each is an entry of a kernel, `void (ptr arguments, ptr workspace)`, and all
; share the scratch memory at the start of the workspace. Linked into each process, or into each library of a model.
;
; Where an argument of a call begins is written as a base and the bytes behind it. Bases are the workspace, and the arrays
; of a run; so nothing here belongs to one run, and runs at the same time need a workspace each.

%place = type { i64, i64 }               ; position of the base among the arguments of a run, 0: the workspace; bytes behind it
%call = type { ptr, i64, i64 }          ; function, first slot, number of slots
%table = type { i64, ptr, ptr, i64 }    ; number of calls, the calls, the slots, where arguments are written in the workspace

; `arguments`: the table, then the arrays.
define void @tensorc_run_calls(ptr %arguments, ptr %workspace) nounwind {
entry:
  %table = load ptr, ptr %arguments, align 8
  %count = load i64, ptr %table, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %step ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %step, label %done
step:
  call void @tensorc_call_at(ptr %arguments, ptr %workspace, i64 %k)
  %k.next = add i64 %k, 1
  br label %loop
done:
  ret void
}

define void @tensorc_call_at(ptr %arguments, ptr %workspace, i64 %k) alwaysinline nounwind {
entry:
  %table = load ptr, ptr %arguments, align 8
  %calls.p = getelementptr %table, ptr %table, i64 0, i32 1
  %calls = load ptr, ptr %calls.p, align 8
  %slots.p = getelementptr %table, ptr %table, i64 0, i32 2
  %slots = load ptr, ptr %slots.p, align 8
  %behind.p = getelementptr %table, ptr %table, i64 0, i32 3
  %behind = load i64, ptr %behind.p, align 8
  %given = getelementptr i8, ptr %workspace, i64 %behind
  %call = getelementptr %call, ptr %calls, i64 %k
  %function = load ptr, ptr %call, align 8
  %first.p = getelementptr %call, ptr %call, i64 0, i32 1
  %first = load i64, ptr %first.p, align 8
  %count.p = getelementptr %call, ptr %call, i64 0, i32 2
  %count = load i64, ptr %count.p, align 8
  %own = getelementptr %place, ptr %slots, i64 %first
  br label %each
each:
  %n = phi i64 [ 0, %entry ], [ %n.next, %write ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %write, label %run
write:
  %slot = getelementptr %place, ptr %own, i64 %n
  %position = load i64, ptr %slot, align 8
  %offset.p = getelementptr %place, ptr %slot, i64 0, i32 1
  %offset = load i64, ptr %offset.p, align 8
  %array.p = getelementptr ptr, ptr %arguments, i64 %position
  %array = load ptr, ptr %array.p, align 8
  %inside = icmp eq i64 %position, 0
  %base = select i1 %inside, ptr %workspace, ptr %array
  %value = getelementptr i8, ptr %base, i64 %offset
  %to = getelementptr ptr, ptr %given, i64 %n
  store ptr %value, ptr %to, align 8
  %n.next = add i64 %n, 1
  br label %each
run:
  call void %function(ptr %given, ptr %workspace)
  ret void
}

; A copy as a call: where to, where from, and the end of that.
define void @tensorc_copy(ptr %given, ptr %workspace) nounwind {
  %to = load ptr, ptr %given, align 8
  %from.p = getelementptr ptr, ptr %given, i64 1
  %from = load ptr, ptr %from.p, align 8
  %end.p = getelementptr ptr, ptr %given, i64 2
  %end = load ptr, ptr %end.p, align 8
  %begin.i = ptrtoint ptr %from to i64
  %end.i = ptrtoint ptr %end to i64
  %size = sub i64 %end.i, %begin.i
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
