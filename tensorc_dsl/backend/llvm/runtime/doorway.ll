; Calls of kernels from Python with arrays of NumPy: what the arrays are is read from memory, all in some hundred
; nanoseconds, where asking each of them by Python for its type, shape and address takes microseconds. The layouts of objects
; are checked against what Python reports before the first use. A call that is not accepted here takes the slow path, in which
; errors are reported.

; A size: the number of an open one, or less than 0, and what is added to it; also the least and the largest of an open one
%size = type { i64, i64 }
; What a parameter has to be: descriptor of the element type, dimensions, their sizes, flags; where its address goes among
; the kernel's arguments, bytes of an element, whether it is written.
%param = type { ptr, i64, ptr, i64, i64, i64, i64 }
; the kernel, scratch memory, 1 while a call uses that, parameters, arguments, arguments as they are without the
; parameters (-1 for an open size), the parameters, which of them is the result; open sizes, the place of the first among the
; arguments, their limits, the function that tells the bytes of scratch memory or null, the bytes that there are
%table = type { ptr, ptr, i64, i64, i64, ptr, ptr, i64, i64, i64, ptr, ptr, i64 }
; CPython's and NumPy's layout of an array: reference count, type, elements, dimensions, sizes, strides, base, descriptor, flags
%array = type { i64, ptr, ptr, i32, ptr, ptr, ptr, ptr, i32 }

@_Py_NoneStruct = external global i8
declare void @Py_IncRef(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; METH_FASTCALL: `self` is a number, the address of a table. Runs the kernel and gives the result; None, with nothing done,
; where an argument is not just what it has to be, open sizes need more scratch memory, or another call has it.
define ptr @tensorc_doorway(ptr %self, ptr %given, i64 %count) nounwind {
entry:
  %values = alloca [512 x ptr]
  %starts = alloca [512 x i64]
  %spans = alloca [512 x i64]
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %params.p = getelementptr %table, ptr %table, i64 0, i32 3
  %params = load i64, ptr %params.p
  %complete = icmp eq i64 %count, %params
  br i1 %complete, label %lock, label %none
lock:
  %busy = getelementptr %table, ptr %table, i64 0, i32 2
  %pair = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  br i1 %got, label %copy, label %none
copy:
  %arguments.p = getelementptr %table, ptr %table, i64 0, i32 4
  %arguments = load i64, ptr %arguments.p
  %fixed.p = getelementptr %table, ptr %table, i64 0, i32 5
  %fixed = load ptr, ptr %fixed.p
  %wanted.p = getelementptr %table, ptr %table, i64 0, i32 6
  %wanted = load ptr, ptr %wanted.p
  %opens.p = getelementptr %table, ptr %table, i64 0, i32 8
  %opens = load i64, ptr %opens.p
  %first.p = getelementptr %table, ptr %table, i64 0, i32 9
  %first = load i64, ptr %first.p
  %limits.p = getelementptr %table, ptr %table, i64 0, i32 10
  %limits = load ptr, ptr %limits.p
  %bytes = mul i64 %arguments, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %fixed, i64 %bytes, i1 false)
  br label %each
each:
  %k = phi i64 [ 0, %copy ], [ %k.next, %stored ]
  %more = icmp ult i64 %k, %params
  br i1 %more, label %look, label %ranges
look:
  %param = getelementptr %param, ptr %wanted, i64 %k
  %object.p = getelementptr ptr, ptr %given, i64 %k
  %object = load ptr, ptr %object.p
  %type.p = getelementptr %array, ptr %object, i64 0, i32 1
  %type = load ptr, ptr %type.p
  %is.array = icmp eq ptr %type, inttoptr (i64 ARRAY_TYPE to ptr)
  br i1 %is.array, label %element, label %wrong
element:
  %descr.p = getelementptr %array, ptr %object, i64 0, i32 7
  %descr = load ptr, ptr %descr.p
  %descr.want = load ptr, ptr %param
  %right.descr = icmp eq ptr %descr, %descr.want
  %rank.p = getelementptr %array, ptr %object, i64 0, i32 3
  %rank32 = load i32, ptr %rank.p
  %rank = zext i32 %rank32 to i64
  %rank.want.p = getelementptr %param, ptr %param, i64 0, i32 1
  %rank.want = load i64, ptr %rank.want.p
  %right.rank = icmp eq i64 %rank, %rank.want
  %flags.p = getelementptr %array, ptr %object, i64 0, i32 8
  %flags32 = load i32, ptr %flags.p
  %flags = zext i32 %flags32 to i64
  %flags.want.p = getelementptr %param, ptr %param, i64 0, i32 3
  %flags.want = load i64, ptr %flags.want.p
  %flags.there = and i64 %flags, %flags.want
  %right.flags = icmp eq i64 %flags.there, %flags.want
  %right.two = and i1 %right.descr, %right.rank
  %right = and i1 %right.two, %right.flags
  br i1 %right, label %sizes, label %wrong
sizes:
  %dims.p = getelementptr %array, ptr %object, i64 0, i32 4
  %dims = load ptr, ptr %dims.p
  %dims.want.p = getelementptr %param, ptr %param, i64 0, i32 2
  %dims.want = load ptr, ptr %dims.want.p
  br label %size
size:
  %d = phi i64 [ 0, %sizes ], [ %d.next, %exact ], [ %d.next, %tell ], [ %d.next, %agree ]
  %length = phi i64 [ 1, %sizes ], [ %length.next, %exact ], [ %length.next, %tell ], [ %length.next, %agree ]
  %in.rank = icmp ult i64 %d, %rank
  br i1 %in.rank, label %compare, label %stored
compare:
  %size.p = getelementptr i64, ptr %dims, i64 %d
  %size.is = load i64, ptr %size.p
  %size.want.p = getelementptr %size, ptr %dims.want, i64 %d
  %number = load i64, ptr %size.want.p
  %added.p = getelementptr %size, ptr %size.want.p, i64 0, i32 1
  %added = load i64, ptr %added.p
  %d.next = add i64 %d, 1
  %length.next = mul i64 %length, %size.is
  %told = sub i64 %size.is, %added
  %is.fixed = icmp slt i64 %number, 0
  br i1 %is.fixed, label %exact, label %open
exact:
  %same = icmp eq i64 %told, 0
  br i1 %same, label %size, label %wrong
open:
  %negative = icmp slt i64 %told, 0
  br i1 %negative, label %wrong, label %known
known:
  %slot.n = add i64 %first, %number
  %slot = getelementptr [512 x ptr], ptr %values, i64 0, i64 %slot.n
  %before = load i64, ptr %slot
  %is.new = icmp eq i64 %before, -1
  br i1 %is.new, label %tell, label %agree
tell:
  store i64 %told, ptr %slot
  br label %size
agree:
  %agrees = icmp eq i64 %before, %told
  br i1 %agrees, label %size, label %wrong
stored:
  %data.p = getelementptr %array, ptr %object, i64 0, i32 2
  %data = load ptr, ptr %data.p
  %place.p = getelementptr %param, ptr %param, i64 0, i32 4
  %place = load i64, ptr %place.p
  %value.p = getelementptr [512 x ptr], ptr %values, i64 0, i64 %place
  store ptr %data, ptr %value.p
  %address = ptrtoint ptr %data to i64
  %start.p = getelementptr [512 x i64], ptr %starts, i64 0, i64 %k
  store i64 %address, ptr %start.p
  %element.bytes.p = getelementptr %param, ptr %param, i64 0, i32 5
  %element.bytes = load i64, ptr %element.bytes.p
  %span = mul i64 %length, %element.bytes
  %span.p = getelementptr [512 x i64], ptr %spans, i64 0, i64 %k
  store i64 %span, ptr %span.p
  %k.next = add i64 %k, 1
  br label %each

; Open sizes are known, and within their limits.
ranges:
  %r = phi i64 [ 0, %each ], [ %r.next, %range ]
  %r.more = icmp ult i64 %r, %opens
  br i1 %r.more, label %range, label %apart
range:
  %r.next = add i64 %r, 1
  %r.slot.n = add i64 %first, %r
  %r.slot = getelementptr [512 x ptr], ptr %values, i64 0, i64 %r.slot.n
  %r.value = load i64, ptr %r.slot
  %low.p = getelementptr %size, ptr %limits, i64 %r
  %low = load i64, ptr %low.p
  %high.p = getelementptr %size, ptr %low.p, i64 0, i32 1
  %high = load i64, ptr %high.p
  %from = icmp sge i64 %r.value, %low
  %upto = icmp sle i64 %r.value, %high
  %within = and i1 %from, %upto
  br i1 %within, label %ranges, label %wrong

; No output may share memory with another array.
apart:
  %o = phi i64 [ 0, %ranges ], [ %o.next, %o.done ]
  %o.more = icmp ult i64 %o, %params
  br i1 %o.more, label %output, label %run
output:
  %o.next = add i64 %o, 1
  %o.param = getelementptr %param, ptr %wanted, i64 %o
  %written.p = getelementptr %param, ptr %o.param, i64 0, i32 6
  %written = load i64, ptr %written.p
  %is.written = icmp ne i64 %written, 0
  br i1 %is.written, label %others, label %o.done
others:
  %o.start.p = getelementptr [512 x i64], ptr %starts, i64 0, i64 %o
  %o.start = load i64, ptr %o.start.p
  %o.bytes.p = getelementptr [512 x i64], ptr %spans, i64 0, i64 %o
  %o.bytes = load i64, ptr %o.bytes.p
  %o.end = add i64 %o.start, %o.bytes
  br label %other
other:
  %j = phi i64 [ 0, %others ], [ %j.next, %meet ]
  %j.more = icmp ult i64 %j, %params
  br i1 %j.more, label %meet, label %o.done
meet:
  %j.next = add i64 %j, 1
  %j.start.p = getelementptr [512 x i64], ptr %starts, i64 0, i64 %j
  %j.start = load i64, ptr %j.start.p
  %j.bytes.p = getelementptr [512 x i64], ptr %spans, i64 0, i64 %j
  %j.bytes = load i64, ptr %j.bytes.p
  %j.end = add i64 %j.start, %j.bytes
  %begins = icmp ult i64 %j.start, %o.end
  %ends = icmp ult i64 %o.start, %j.end
  %different = icmp ne i64 %o, %j
  %touch = and i1 %begins, %ends
  %shared = and i1 %touch, %different
  br i1 %shared, label %wrong, label %other
o.done:
  br label %apart

run:
  %teller.p = getelementptr %table, ptr %table, i64 0, i32 11
  %teller = load ptr, ptr %teller.p
  %always = icmp eq ptr %teller, null
  br i1 %always, label %call, label %memory
memory:
  %needed = call i64 %teller(ptr %values)
  %there.p = getelementptr %table, ptr %table, i64 0, i32 12
  %there = load i64, ptr %there.p
  %suffices = icmp ule i64 %needed, %there
  br i1 %suffices, label %call, label %wrong
call:
  %kernel = load ptr, ptr %table
  %scratch.p = getelementptr %table, ptr %table, i64 0, i32 1
  %scratch = load ptr, ptr %scratch.p
  %result.p = getelementptr %table, ptr %table, i64 0, i32 7
  %result = load i64, ptr %result.p
  %thread = call ptr @PyEval_SaveThread()
  call void %kernel(ptr %values, ptr %scratch)
  call void @PyEval_RestoreThread(ptr %thread)
  store atomic i64 0, ptr %busy release, align 8
  %out.p = getelementptr ptr, ptr %given, i64 %result
  %out = load ptr, ptr %out.p
  call void @Py_IncRef(ptr %out)
  ret ptr %out
wrong:
  store atomic i64 0, ptr %busy release, align 8
  br label %none
none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
