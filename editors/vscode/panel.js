// The program as it stands after the step at the cursor, in a document beside the text that nobody edits.
"use strict";

const vscode = require("vscode");

const SCHEME = "tensorc-dsl-program";
const ADDRESS = `${SCHEME}:/program.tsched`;
const PAUSE = 100; // milliseconds without a key or a move of the cursor after which the server is asked

const ASK = "tensorc-dsl.programAfterStep";
const SHOW = "tensorc-dsl.show";

/** What the server answers, as a text of the language. */
function written({ task, program, step, times, draws, problem }, source) {
  const said = [];
  if (task) {
    const after = step ? `after ${source.getText(range(step)).split(/\s+/).join(" ")}` : "before the first step";
    said.push(`${task}: ${after}${times > 1 ? `, for the last of ${times} times` : ""}`);
  }
  for (const { name, value, legal } of draws ?? []) said.push(`${name} = ${value}: ${legal}`);
  if (problem) said.push("", ...problem.split("\n"));
  return `${said.map((line) => `// ${line}`.trimEnd()).join("\n")}\n\n${program ?? ""}`;
}

function range({ start, end }) {
  return new vscode.Range(start.line, start.character, end.line, end.character);
}

/** `ask(command, arguments)` has the server run a command; null without a server. */
exports.Panel = class {
  constructor(ask) {
    this.ask = ask;
    this.text = "";
    this.changed = new vscode.EventEmitter();
    this.onDidChange = this.changed.event;
    this.asked = 0;
  }

  register() {
    const follow = (document) => document.languageId === "tsched" && document.uri.scheme !== SCHEME && this.soon();
    return [
      this.changed,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.commands.registerCommand("tensorc-dsl.showProgram", () => this.open()),
      vscode.window.onDidChangeTextEditorSelection((event) => follow(event.textEditor.document)),
      vscode.workspace.onDidChangeTextDocument((event) => follow(event.document)),
      { dispose: () => clearTimeout(this.waiting) },
    ];
  }

  provideTextDocumentContent() {
    return this.text;
  }

  /** The document is beside the text, with the program at its cursor. */
  async open() {
    await this.update();
    await this.reveal();
  }

  async reveal() {
    const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(ADDRESS));
    await vscode.window.showTextDocument(document, {
      viewColumn: vscode.ViewColumn.Beside, preserveFocus: true, preview: false,
    });
  }

  /** Whether the document is on the screen: else nobody needs the program. */
  get isSeen() {
    return vscode.window.visibleTextEditors.some((editor) => editor.document.uri.scheme === SCHEME);
  }

  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.isSeen && this.update(), PAUSE);
  }

  async update() {
    const editor = vscode.window.activeTextEditor;
    if (!editor || editor.document.languageId !== "tsched" || editor.document.uri.scheme === SCHEME) return;
    const number = ++this.asked;
    const { line, character } = editor.selection.active;
    const answer = await this.ask(ASK, [editor.document.uri.toString(), { line, character }]);
    // Of several questions only the last one counts, whatever order the answers come in.
    if (number === this.asked && answer) this.put(answer, editor.document);
  }

  put(answer, document) {
    this.text = written(answer, document);
    this.changed.fire(vscode.Uri.parse(ADDRESS));
  }

  /** Runs a command of the server that the editor was asked for, such as that of a lens, and shows a program that it gives. */
  async run(command, given, next) {
    const answer = await next(command, given);
    const editor = vscode.window.activeTextEditor;
    if (command === SHOW && answer && editor) {
      ++this.asked;
      this.put(answer, editor.document);
      await this.reveal();
    }
    return answer;
  }
};
