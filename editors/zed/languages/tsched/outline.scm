; The items of a file, and its draws.

(compute "compute" @context name: (identifier) @name) @item
(reducer "reducer" @context name: (identifier) @name) @item
(intrinsic "intrinsic" @context name: (identifier) @name) @item
(const "const" @context name: (identifier) @name) @item
(module "module" @context name: (identifier) @name) @item
(space "space" @context name: (identifier) @name) @item
(schedule "schedule" @context name: (identifier) @name) @item
(prior "prior" @context name: (identifier) @name) @item
(target "target" @context name: (identifier) @name) @item
(task "task" @context name: (identifier) @name) @item
(model "model" @context name: (identifier) @name) @item
(program "program" @context name: (identifier) @name) @item
(draw (identifier) @name . "~" @context) @item
