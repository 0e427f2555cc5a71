; An instance of a model: the scratch memory that is kept from run to run, and the packed weights, which are a mapped file.
; Pages of the file are shared by all instances, also of other processes.

%instance = type { ptr, ptr }

declare i32 @open(ptr, i32, ...) nounwind
declare i32 @close(i32) nounwind
declare i64 @lseek(i32, i64, i32) nounwind
declare ptr @mmap(ptr, i64, i32, i32, i32, i64) nounwind
declare i32 @munmap(ptr, i64) nounwind
declare i32 @posix_memalign(ptr, i64, i64) nounwind
declare void @free(ptr) nounwind
declare ptr @tensorc_scratch_take(ptr, i64) nounwind
declare void @tensorc_scratch_give(ptr, ptr) nounwind

; A new instance in `out`, with `scratch` bytes of scratch memory. A model without weights has 0 `bytes` of them, and no file.
; The file is read only as far as to see that it is as long, and begins with these two words.
define i32 @tensorc_instance_create(ptr %path, i64 %bytes, i64 %mark, i64 %scratch, ptr %out) nounwind {
entry:
  %place = alloca ptr, align 8
  %some = icmp ne i64 %bytes, 0
  br i1 %some, label %file, label %room
file:
  ; O_RDONLY, O_NONBLOCK: a pipe is not waited for, O_CLOEXEC
  %descriptor = call i32 (ptr, i32, ...) @open(ptr %path, i32 OPEN_FLAGS)
  %closed = icmp slt i32 %descriptor, 0
  br i1 %closed, label %no.file, label %measure
measure:
  %size = call i64 @lseek(i32 %descriptor, i64 0, i32 2)
  %fits = icmp eq i64 %size, %bytes
  br i1 %fits, label %map, label %drop
drop:
  %d = call i32 @close(i32 %descriptor)
  br label %other
map:
  ; PROT_READ, MAP_PRIVATE
  %mapped = call ptr @mmap(ptr null, i64 %bytes, i32 1, i32 2, i32 %descriptor, i64 0)
  %c = call i32 @close(i32 %descriptor)
  %unmapped = icmp eq ptr %mapped, inttoptr (i64 -1 to ptr)
  br i1 %unmapped, label %no.memory, label %look
look:
  %found = load i64, ptr %mapped, align 8
  %second = getelementptr i64, ptr %mapped, i64 1
  %long = load i64, ptr %second, align 8
  %same.mark = icmp eq i64 %found, %mark
  %same.size = icmp eq i64 %long, %bytes
  %same = and i1 %same.mark, %same.size
  br i1 %same, label %room, label %unmap
unmap:
  %u = call i32 @munmap(ptr %mapped, i64 %bytes)
  br label %other
room:
  %weights = phi ptr [ null, %entry ], [ %mapped, %look ]
  %r = call i32 @posix_memalign(ptr %place, i64 64, i64 64)
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %release, label %fill
fill:
  %instance = load ptr, ptr %place, align 8
  store ptr null, ptr %instance, align 8
  %weights.p = getelementptr %instance, ptr %instance, i64 0, i32 1
  store ptr %weights, ptr %weights.p, align 8
  %block = call ptr @tensorc_scratch_take(ptr %instance, i64 %scratch)
  %none = icmp eq ptr %block, null
  br i1 %none, label %forget, label %done
done:
  call void @tensorc_scratch_give(ptr %instance, ptr %block)
  store ptr %instance, ptr %out, align 8
  ret i32 0
forget:
  call void @free(ptr %instance)
  br label %release
release:
  br i1 %some, label %release.file, label %no.memory
release.file:
  %v = call i32 @munmap(ptr %weights, i64 %bytes)
  br label %no.memory
no.memory:
  ret i32 MEMORY
no.file:
  ret i32 FILE
other:
  ret i32 WEIGHTS
}

define void @tensorc_instance_destroy(ptr %instance, i64 %bytes) nounwind {
entry:
  %none = icmp eq ptr %instance, null
  br i1 %none, label %done, label %scratch
scratch:
  %block = load ptr, ptr %instance, align 8
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %weights, label %drop
drop:
  %head = getelementptr i8, ptr %block, i64 -64
  call void @free(ptr %head)
  br label %weights
weights:
  %weights.p = getelementptr %instance, ptr %instance, i64 0, i32 1
  %mapped = load ptr, ptr %weights.p, align 8
  %mapped.any = icmp ne ptr %mapped, null
  br i1 %mapped.any, label %unmap, label %last
unmap:
  %u = call i32 @munmap(ptr %mapped, i64 %bytes)
  br label %last
last:
  call void @free(ptr %instance)
  br label %done
done:
  ret void
}
