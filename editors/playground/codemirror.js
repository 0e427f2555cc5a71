// What the playground's page uses of CodeMirror. `make codemirror` builds one file of it.
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export {
  bracketMatching, indentUnit, StreamLanguage, syntaxHighlighting,
} from "@codemirror/language";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
export { Compartment, EditorState, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
export {
  Decoration, drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars,
  hoverTooltip, keymap, lineNumbers, showTooltip,
} from "@codemirror/view";
export { Tag, tagHighlighter } from "@lezer/highlight";
