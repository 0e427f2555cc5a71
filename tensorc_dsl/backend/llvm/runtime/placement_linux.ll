
; Placement of threads, on Linux.
;
; A worker that wakes up on its caller's processor may stay there for a long time, since both look busy to the system.
; It moves itself once: away from that processor, and at once free again to run anywhere it could before.

declare i32 @sched_getcpu() nounwind
declare i32 @sched_getaffinity(i32, i64, ptr) nounwind
declare i32 @sched_setaffinity(i32, i64, ptr) nounwind

define internal i32 @processor() nounwind {
  %cpu = call i32 @sched_getcpu()
  ret i32 %cpu
}

; How many processors this process may run on; as many as the mask has room for where there are more.
define internal i64 @processors() nounwind {
entry:
  %all = alloca [16 x i64], align 8
  store [16 x i64] zeroinitializer, ptr %all
  %r = call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)
  %failed = icmp slt i32 %r, 0
  br i1 %failed, label %many, label %count
count:
  %mask = load i1024, ptr %all, align 8
  %set = call i1024 @llvm.ctpop.i1024(i1024 %mask)
  %out = trunc i1024 %set to i64
  ret i64 %out
many:
  ret i64 1024
}

declare i1024 @llvm.ctpop.i1024(i1024)

define internal void @move_from(i32 %cpu) nounwind {
entry:
  %all = alloca [16 x i64], align 8
  %rest = alloca [16 x i64], align 8
  store [16 x i64] zeroinitializer, ptr %all
  %known = icmp ult i32 %cpu, 1024
  br i1 %known, label %look, label %done
look:
  %r = call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)
  %failed = icmp slt i32 %r, 0
  br i1 %failed, label %done, label %mask
mask:
  %bits = load [16 x i64], ptr %all
  store [16 x i64] %bits, ptr %rest
  %word = lshr i32 %cpu, 6
  %bit = and i32 %cpu, 63
  %bit64 = zext i32 %bit to i64
  %one = shl i64 1, %bit64
  %others = xor i64 %one, -1
  %place = getelementptr i64, ptr %rest, i32 %word
  %old = load i64, ptr %place
  %new = and i64 %old, %others
  store i64 %new, ptr %place
  ; Fails, and changes nothing, when no processor is left.
  %s = call i32 @sched_setaffinity(i32 0, i64 128, ptr %rest)
  %t = call i32 @sched_setaffinity(i32 0, i64 128, ptr %all)
  br label %done
done:
  ret void
}
