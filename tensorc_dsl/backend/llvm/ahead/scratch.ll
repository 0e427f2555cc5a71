; Memory for intermediate results, handed on from call to call.
;
; A kernel keeps one block in `cache`. A call takes it out, so that another call at the same time finds none and makes its
; own; the block that is given back last is kept, and the one it replaces is freed. The size stands in the 64 bytes before.

declare i32 @posix_memalign(ptr, i64, i64) nounwind
declare void @free(ptr) nounwind

; At least `bytes` bytes, aligned to 64; null where there is no memory.
define ptr @tensorc_scratch_take(ptr %cache, i64 %bytes) nounwind {
entry:
  %out = alloca ptr, align 8
  %held = atomicrmw xchg ptr %cache, ptr null acq_rel, align 8
  %none = icmp eq ptr %held, null
  br i1 %none, label %make, label %look
look:
  %head = getelementptr i8, ptr %held, i64 -64
  %size = load i64, ptr %head, align 64
  %fits = icmp uge i64 %size, %bytes
  br i1 %fits, label %found, label %drop
found:
  ret ptr %held
drop:
  call void @free(ptr %head)
  br label %make
make:
  ; More than any machine has: sizes that are no sizes.
  %absurd = icmp ugt i64 %bytes, 1152921504606846976
  br i1 %absurd, label %fail, label %allocate
allocate:
  %total = add i64 %bytes, 64
  %r = call i32 @posix_memalign(ptr %out, i64 64, i64 %total)
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %fail, label %made
made:
  %new = load ptr, ptr %out, align 8
  store i64 %bytes, ptr %new, align 64
  %data = getelementptr i8, ptr %new, i64 64
  ret ptr %data
fail:
  ret ptr null
}

define void @tensorc_scratch_give(ptr %cache, ptr %block) nounwind {
entry:
  %old = atomicrmw xchg ptr %cache, ptr %block acq_rel, align 8
  %none = icmp eq ptr %old, null
  br i1 %none, label %done, label %drop
drop:
  %head = getelementptr i8, ptr %old, i64 -64
  call void @free(ptr %head)
  br label %done
done:
  ret void
}
