;;; tsched-mode.el --- Major mode for .tsched files  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0
;; Version: 0.1.0
;; Package-Requires: ((emacs "27.1"))
;; Keywords: languages

;;; Commentary:

;; Colours, indentation and a menu of items for tensor computations and their schedules.  The rules of the colours are those of
;; tensorc_dsl/syntax/highlight/rules.py.  The language server starts with `M-x eglot', where Eglot is installed (it is part of Emacs 29).

;;; Code:

(defgroup tsched nil
  "Tensor computations and their schedules."
  :group 'languages)

(defcustom tsched-indent-offset 4
  "How far the inside of brackets stands to the right.
The formatter, `tensorc-dsl fmt', writes 4."
  :type 'integer
  :safe #'integerp)

(defcustom tsched-server-command '("tensorc-dsl" "lsp")
  "The program of the language server, and its arguments."
  :type '(repeat string))

(defface tsched-number '((t :inherit font-lock-constant-face)) "Numbers.")
(defface tsched-escape '((t :inherit font-lock-regexp-grouping-backslash)) "Escapes in strings.")
(defface tsched-annotation '((t :inherit font-lock-preprocessor-face)) "Known keys of annotations.")
(defface tsched-primitive '((t :inherit font-lock-function-name-face)) "Steps of schedules.")
(defface tsched-draw '((t :inherit font-lock-warning-face)) "Distributions that the search draws from.")
(defface tsched-attribute '((t :inherit default)) "What is asked of a value, behind its point.")

;; generated: lists

(defconst tsched--reserved
  '("and" "either" "else" "for" "if" "in" "let" "maybe" "not" "or" "where" "yield"))

(defconst tsched--constants
  '("_" "false" "inf" "nan" "true"))

(defconst tsched--soft
  '("asm" "assume" "at" "block" "bound" "buffer" "call" "compute" "const" "desc" "identity" "init" "intrinsic"
    "layout" "like" "lower" "model" "module" "otherwise" "parallel" "pipelined" "prior" "program" "reduce" "reducer"
    "requires" "scan" "schedule" "select" "sha256" "space" "spatial" "step" "strides" "target" "task" "tensorized"
    "try" "unrolled" "updates" "use" "vectorized" "weights" "when" "with"))

(defconst tsched--defining
  '("block" "buffer" "compute" "intrinsic" "model" "module" "prior" "program" "reducer" "schedule" "space" "target"
    "task"))

(defconst tsched--before-name
  '("assume" "block" "buffer" "compute" "const" "intrinsic" "lower" "model" "module" "prior" "program" "reduce"
    "reducer" "scan" "schedule" "select" "space" "spatial" "target" "task" "updates" "use" "with"))

(defconst tsched--before-string
  '("asm" "call" "layout" "requires" "sha256" "weights"))

(defconst tsched--before-for
  '("parallel" "pipelined" "tensorized" "unrolled" "vectorized"))

(defconst tsched--before-value
  '("identity" "init" "like" "step" "when"))

(defconst tsched--reducers
  '("all" "any" "argmax" "argmin" "max" "min" "prod" "sum"))

(defconst tsched--dtypes
  '("bf16" "bool" "f16" "f32" "f64" "f8e4m3" "f8e5m2" "i16" "i32" "i64" "i8" "u16" "u32" "u64" "u8"))

(defconst tsched--types
  '("Block" "Buffer" "Instruction" "Loop" "Module" "Node" "Program" "Target" "bf16" "bool" "f16" "f32" "f64"
    "f8e4m3" "f8e5m2" "float" "i16" "i32" "i64" "i8" "int" "list" "str" "u16" "u32" "u64" "u8"))

(defconst tsched--builtins
  '("abs" "acos" "acosh" "all" "any" "asin" "asinh" "atan" "atan2" "atanh" "bit_and" "bit_not" "bit_or" "bitcast"
    "cbrt" "ceil" "clamp" "clz" "concat" "copysign" "cos" "cosh" "ctz" "erf" "erfc" "exp" "exp2" "expm1" "floor"
    "hypot" "interleave" "isfinite" "isinf" "isnan" "len" "log" "log10" "log1p" "log2" "max" "min" "popcount" "pow"
    "product" "range" "reversed" "round" "rsqrt" "saturate" "select" "shift_left" "shift_right" "sigmoid" "sign"
    "sin" "sinh" "so_far" "sqrt" "sum" "tan" "tanh" "tf32" "tile_levels" "trunc" "within" "xor"))

(defconst tsched--primitives
  '("accumulate_at" "add_unit_loop" "annotate" "atomic" "bind" "cache_inplace" "cache_read" "cache_write"
    "compute_at" "compute_inline" "decompose_padding" "decompose_reduction" "double_scan" "expand_reduction"
    "fission" "fold_scan" "fuse" "fuse_reduction_epilogue" "join_nodes" "keep_order" "look_back" "loop_partition"
    "merge" "move_behind" "online_sums" "pad_einsum" "parallel" "persist" "prefetch" "read_at" "reindex"
    "reindex_cache_read" "reindex_cache_write" "reorder" "reorder_block_iters" "reverse_compute_at"
    "reverse_compute_inline" "rfactor" "rolling_buffer" "scatter" "set_scope" "skew" "skip_zeros"
    "software_pipeline" "specialize" "split" "split_scan" "storage_align" "storage_swizzle" "stream_k" "tensorize"
    "tile" "transform_block_layout" "transform_layout" "unannotate" "unroll" "vectorize" "write_at"))

(defconst tsched--draws
  '("sample_categorical" "sample_compute_location" "sample_int" "sample_partial_tile" "sample_partitioned_tile"
    "sample_perfect_tile" "sample_permutation"))

(defconst tsched--annotations
  '("intrinsic" "pipeline.asynchronous" "pipeline.order" "pipeline.stages" "reducer" "specialize.registers"
    "specialize.roles" "store.nontemporal" "unroll.max_step"))

;; end: lists

(defconst tsched--name "[A-Za-z_][A-Za-z0-9_]*")

(defun tsched--any (words)
  "A pattern for each of WORDS as a whole."
  (concat "\\_<" (regexp-opt words t) "\\_>"))

(defconst tsched--no-name (tsched--any tsched--reserved))

(defconst tsched--no-value
  (tsched--any (seq-difference tsched--reserved '("not" "for")))
  "The reserved words that begin no value.")

(defconst tsched--subscript "\\[\\(?:[^][\n]\\|\\[[^][\n]*\\]\\)*\\]")

(defun tsched--matcher (pattern check)
  "A matcher of font-lock for PATTERN, where CHECK holds with point behind it."
  (lambda (limit)
    (let (found)
      (while (and (not found) (re-search-forward pattern limit t))
        (setq found (save-match-data (save-excursion (funcall check)))))
      found)))

(defun tsched--before (words after &optional but)
  "A matcher for WORDS in front of the pattern AFTER, but not of BUT."
  (tsched--matcher
   (tsched--any words)
   (lambda ()
     (and (looking-at after)
          (not (and but (progn (skip-chars-forward " \t") (looking-at but))))))))

(defun tsched--follows (chars)
  "Whether one of CHARS and a blank are in front of the word before point."
  (skip-chars-backward "A-Za-z0-9_")
  (and (eq (char-before) ?\s) (progn (backward-char) (/= 0 (skip-chars-backward chars (1- (point)))))))

(defun tsched--type-p ()
  "Whether the word in front of point is a type there."
  (let ((word (buffer-substring-no-properties (save-excursion (skip-chars-backward "A-Za-z0-9_") (point)) (point)))
        (call (eq (char-after) ?\())
        (follows (memq (char-after) '(?, ?\( ?\)))))
    (skip-chars-backward "A-Za-z0-9_")
    (or (looking-back ": " (- (point) 2))
        (looking-back "\\_<\\(?:Module\\|list\\)(" (line-beginning-position))
        (let ((case-fold-search nil))
          (and (string-match-p "\\`[A-Z]" word) follows (looking-back "(\\|, " (- (point) 2))))
        (and (member word tsched--dtypes) (or call (looking-back "\\_<const " (line-beginning-position)))))))

(defvar tsched-font-lock-keywords
  `((,(tsched--matcher "\\\\\\(?:[\"\\ntr]\\|u{[0-9A-Fa-f]+}\\)" (lambda () (nth 3 (syntax-ppss))))
     0 'tsched-escape t)
    (,(tsched--matcher (concat "\"" (regexp-opt tsched--annotations t) "\"")
                       (lambda () (not (syntax-ppss-context (syntax-ppss)))))
     0 'tsched-annotation t)
    ("\\_<[0-9]+\\(?:\\.[0-9]+\\)?\\(?:[eE][+-]?[0-9]+\\)?" . 'tsched-number)
    (,(tsched--matcher (concat "\\.\\(" tsched--name "\\)")
                       (lambda () (/= ?. (char-before (1- (match-beginning 1))))))
     1 'tsched-attribute)
    (,(tsched--matcher (concat (tsched--any tsched--defining) "[ \t]+\\(" tsched--name "\\)")
                       (lambda () (goto-char (match-beginning 2)) (not (looking-at tsched--no-name))))
     (1 font-lock-keyword-face) (2 font-lock-function-name-face))
    (,(concat "\\_<\\(const\\)[ \t]+\\(" tsched--name "\\)[ \t]*=")
     (1 font-lock-keyword-face) (2 font-lock-function-name-face))
    (,(tsched--before tsched--before-name "[ \t]+[A-Za-z_]" tsched--no-name) . font-lock-keyword-face)
    (,(tsched--before tsched--before-string "[ \t]*\"") . font-lock-keyword-face)
    (,(tsched--before tsched--before-for "[ \t]+for\\_>") . font-lock-keyword-face)
    (,(tsched--before '("bound") "(\"[^\"\n]*\")[ \t]+for\\_>") . font-lock-keyword-face)
    (,(tsched--before tsched--before-value "[ \t]+\\(?:[A-Za-z0-9_\"([]\\|-[^ \t]\\)" tsched--no-value)
     . font-lock-keyword-face)
    (,(tsched--before '("desc") (concat "[ \t]*([ \t]*" tsched--name "[ \t]*:")) . font-lock-keyword-face)
    (,(tsched--matcher (tsched--any '("init" "otherwise" "try")) (lambda () (and (looking-at "[ \t]*{") (not (tsched--follows "A-Za-z")))))
     . font-lock-keyword-face)
    (,(tsched--matcher "\\_<at\\_>" (lambda () (and (looking-at "[ \t]*\\[") (tsched--follows "])A-Za-z0-9_"))))
     . font-lock-keyword-face)
    (,(tsched--before '("scan") (concat "[ \t]*" tsched--subscript "[ \t]*\\(?:init\\_>\\|//\\|$\\)")) . font-lock-keyword-face)
    (,(tsched--any tsched--constants) . font-lock-constant-face)
    (,(tsched--any tsched--reserved) . font-lock-keyword-face)
    (,(tsched--matcher (tsched--any tsched--reducers)
                       (lambda ()
                         (and (looking-at "[ \t]*\\[")
                              (not (looking-at (concat "[ \t]*" tsched--subscript "[ \t]*\\(?:\\+=\\|=[^=]\\|@\\)"))))))
     . font-lock-builtin-face)
    (,(tsched--matcher (tsched--any tsched--types) #'tsched--type-p) . font-lock-type-face)
    (,(tsched--before tsched--draws "[ \t]*(") . 'tsched-draw)
    (,(tsched--before tsched--primitives "[ \t]*(") . 'tsched-primitive)
    (,(tsched--before tsched--builtins "[ \t]*(") . font-lock-builtin-face))
  "What is coloured besides comments and strings: of two that fit, the first.")

(defvar tsched-mode-syntax-table
  (let ((table (make-syntax-table)))
    (modify-syntax-entry ?/ ". 12" table)
    (modify-syntax-entry ?\n ">" table)
    (modify-syntax-entry ?_ "_" table)
    (modify-syntax-entry ?\" "\"" table)
    (modify-syntax-entry ?\\ "\\" table)
    (dolist (sign '(?+ ?- ?* ?% ?< ?> ?= ?~ ?: ?@ ?.))
      (modify-syntax-entry sign "." table))
    table))

(defun tsched--syntactic-face (state)
  "The face of the string or comment that STATE is in."
  (cond ((nth 3 state) font-lock-string-face)
        ((save-excursion (goto-char (nth 8 state)) (looking-at "///\\(?:[^/]\\|$\\)")) font-lock-doc-face)
        (t font-lock-comment-face)))

;; Indentation

(defconst tsched--goes-on "[ \t]*\\(?:\\_<\\(?:and\\|or\\|else\\)\\_>\\|otherwise[ \t]*{\\|[-+*%<>=.~]\\|/[^/]\\|:=\\|!=\\)"
  "The beginning of a line that goes on with the one above.")

(defconst tsched--unfinished
  (concat "\\(?:[-+*/%=~]\\|\\_<\\(?:" (regexp-opt (cons "scan" tsched--reducers)) "\\|reduce[ \t]+" tsched--name "\\)"
          "\\[[^][\n]*\\]\\)[ \t]*$")
  "The end of a line after which a value must come.")

(defun tsched--indentation-of-statement ()
  "The indentation of the line in which the statement of this line begins."
  (save-excursion
    (beginning-of-line)
    (while (and (not (bobp)) (looking-at tsched--goes-on))
      (tsched--line-above))
    (current-indentation)))

(defun tsched--line-above ()
  "Go to the beginning of the line above that is not blank; nil if there is none."
  (let (found)
    (while (and (not found) (zerop (forward-line -1)))
      (setq found (not (looking-at "[ \t]*$"))))
    found))

(defun tsched--in-compute ()
  "Whether this line is in the head of a compute, whose parts stand at column 0."
  (save-excursion
    (beginning-of-line)
    (while (and (looking-at "[ \t]") (tsched--line-above)))
    (looking-at "compute\\_>\\|where\\_>\\|assume\\_>\\|)")))

(defun tsched--indentation ()
  "The column at which this line begins."
  (save-excursion
    (beginning-of-line)
    (let* ((open (nth 1 (syntax-ppss)))
           (outer (if open (save-excursion (goto-char open) (tsched--indentation-of-statement)) 0))
           (base (if open (+ outer tsched-indent-offset) 0))
           (goes-on (and (looking-at tsched--goes-on) (not (looking-at "[ \t]*->"))))
           (closes (looking-at "[ \t]*[])}]"))
           (comment (looking-at "[ \t]*//"))
           (part (looking-at (concat "[ \t]*" (tsched--any '("desc" "layout" "lower" "identity" "assume"))))))
      (cond
       (closes outer)
       (comment base)
       ((not (tsched--line-above)) 0)
       (goes-on (if open (+ base tsched-indent-offset) (+ (tsched--indentation-of-statement) tsched-indent-offset)))
       ((and part (not open)) (if (tsched--in-compute) 0 tsched-indent-offset))
       ;; where A = …,
       ;;       B = …
       ((and (not open) (not (looking-at "[ \t]*//")) (looking-at ".*,[ \t]*$"))
        (+ (current-indentation) (if (looking-at "[ \t]*\\(\\(?:where\\|assume\\)[ \t]\\)") (length (match-string 1)) 0)))
       ((and (not (looking-at "[ \t]*//")) (looking-at (concat ".*?" tsched--unfinished)))
        (+ (tsched--indentation-of-statement) tsched-indent-offset))
       (t base)))))

(defun tsched-indent-line ()
  "Give this line its indentation."
  (let ((column (tsched--indentation)))
    (if (<= (current-column) (current-indentation))
        (indent-line-to column)
      (save-excursion (indent-line-to column)))))

;;;###autoload
(define-derived-mode tsched-mode prog-mode "tsched"
  "Major mode for tensor computations and their schedules."
  (setq-local comment-start "// ")
  (setq-local comment-start-skip "///*[ \t]*")
  (setq-local comment-end "")
  (setq-local font-lock-defaults
              '(tsched-font-lock-keywords nil nil nil (font-lock-syntactic-face-function . tsched--syntactic-face)))
  (setq-local indent-line-function #'tsched-indent-line)
  (setq-local indent-tabs-mode nil)
  (setq-local electric-indent-chars (append "{}[]()" electric-indent-chars))
  (setq-local imenu-generic-expression
              `((nil ,(concat "^" (tsched--any (cons "const" tsched--defining)) "[ \t]+\\(" tsched--name "\\)") 2))))

;;;###autoload
(add-to-list 'auto-mode-alist '("\\.tsched\\'" . tsched-mode))

(defvar eglot-server-programs)
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs (cons 'tsched-mode (lambda (&rest _) tsched-server-command))))

(provide 'tsched-mode)
;;; tsched-mode.el ends here
