;;; tsched-mode-test.el --- What test_emacs.py asks of the mode  -*- lexical-binding: t; -*-

;; $EXPECTED has, for each file, its path and the words: where each begins and ends, and the faces that it may have.
;; $INDENTED has the paths of files whose lines keep their indentation.

(require 'ert)
(require 'imenu)
(require 'newcomment)
(require 'seq)
(require 'tsched-mode)

(defun told (variable)
  "What the file has that VARIABLE of the environment names."
  (with-temp-buffer
    (insert-file-contents (getenv variable))
    (read (current-buffer))))

(defmacro in-file (path &rest body)
  "Run BODY in the text of PATH, in the mode."
  `(with-temp-buffer
     (insert-file-contents ,path)
     (tsched-mode)
     ,@body))

(ert-deftest each-word-has-its-face ()
  (let (wrong)
    (pcase-dolist (`(,path . ,words) (told "EXPECTED"))
      (in-file path
       (font-lock-ensure)
       (pcase-dolist (`(,start ,end . ,faces) words)
         (let ((got (seq-uniq (mapcar (lambda (at) (get-text-property at 'face)) (number-sequence start (1- end))))))
           (unless (seq-every-p (lambda (face) (memq face faces)) got)
             (push (format "%s:%d %s is %s, and was %s" path (line-number-at-pos start) (buffer-substring-no-properties start end)
                           faces got)
                   wrong))))))
    (should (equal nil (nreverse wrong)))))

(ert-deftest lines-are-indented-as-the-formatter-does-it ()
  (dolist (path (told "INDENTED"))
    (in-file path
     (let ((text (buffer-string)))
       (goto-char (point-min))
       (while (not (eobp))
         (delete-horizontal-space)
         (forward-line))
       (indent-region (point-min) (point-max))
       (should (equal (substring-no-properties text) (buffer-substring-no-properties (point-min) (point-max))))))))

(ert-deftest a-file-is-opened-in-the-mode ()
  (should (eq (cdr (assoc "\\.tsched\\'" auto-mode-alist)) 'tsched-mode)))

(ert-deftest a-line-becomes-a-comment-and-a-line-again ()
  (with-temp-buffer
    (tsched-mode)
    (insert "const a = 1")
    (comment-region (point-min) (point-max))
    (should (equal (buffer-string) "// const a = 1"))
    (uncomment-region (point-min) (point-max))
    (should (equal (buffer-string) "const a = 1"))))

(ert-deftest items-are-in-the-menu ()
  (with-temp-buffer
    (tsched-mode)
    (insert "const a = 1\nmodule split(b: Block) { split(b) }\n")
    (should (equal (mapcar #'car (imenu--make-index-alist t)) '("*Rescan*" "a" "split")))))

;;; tsched-mode-test.el ends here
