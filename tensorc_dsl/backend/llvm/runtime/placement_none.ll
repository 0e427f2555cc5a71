; Placement of threads where a thread cannot ask for another processor.

declare i64 @sysconf(i32) nounwind

define internal i32 @processor() nounwind {
  ret i32 -1
}

; How many processors are switched on: _SC_NPROCESSORS_ONLN, as macOS and the BSDs number it.
define internal i64 @processors() nounwind {
  %out = call i64 @sysconf(i32 58)
  ret i64 %out
}

define internal void @move_from(i32 %cpu) nounwind {
  ret void
}
