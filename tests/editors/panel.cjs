// Runs the panel of the extension against a VS Code that a person writes and looks in, and prints what is seen.
const Module = require("module");

const asked = [];
const beside = [];
const seen = {};
const handlers = {};
let answers = [];
let waiting = [];

// Pauses end when `pause` says so.
global.setTimeout = (f) => waiting.push(f);
global.clearTimeout = (n) => n && (waiting[n - 1] = () => {});
const pause = async () => {
  const now = waiting;
  waiting = [];
  now.forEach((f) => f());
  for (let n = 0; n < 10; n++) await null;
};

class EventEmitter {
  event = () => {};
  fire() {}
}

const on = (name) => (f) => ((handlers[name] = f), {});
const uri = (text) => ({ scheme: text.split(":")[0], toString: () => text });
const source = { languageId: "tsched", uri: uri("file:///a.tsched"), getText: () => "split(i,\n    [8, _])" };
const program = { document: { languageId: "tsched", uri: uri("tensorc-dsl-program:/program.tsched") } };
const editor = { document: source, selection: { active: { line: 3, character: 0 } } };

const vscode = {
  EventEmitter,
  Range: class {},
  ViewColumn: { Beside: "beside" },
  Uri: { parse: uri },
  workspace: {
    registerTextDocumentContentProvider: () => ({}),
    onDidChangeTextDocument: on("edit"),
    openTextDocument: async (address) => ({ address }),
  },
  window: {
    visibleTextEditors: [],
    activeTextEditor: editor,
    onDidChangeTextEditorSelection: on("move"),
    showTextDocument: async ({ address }, { viewColumn, preserveFocus }) => {
      beside.push(String(address), `${viewColumn}, ${preserveFocus ? "without" : "with"} the focus`);
      vscode.window.visibleTextEditors = [program];
    },
  },
  commands: { registerCommand: (name, f) => ((handlers[name] = f), {}) },
};

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

const at = { start: { line: 0, character: 0 }, end: { line: 0, character: 1 } };
const answer = (text, more) => ({ task: "small", program: text, step: null, times: 1, draws: [], problem: "", ...more });

(async () => {
  const { Panel } = require(require("path").resolve(process.argv[2]));
  const panel = new Panel(async (_, [address, { line }]) => (asked.push([address, line]), answers.shift()));
  panel.register();

  answers = [answer("program 1", { step: at, draws: [{ name: "rows", value: "[8, 8]", legal: "2 factors" }] })];
  await handlers["tensorc-dsl.showProgram"]();
  seen.opened = panel.provideTextDocumentContent();
  seen.beside = beside.slice();

  // Several moves in a row are one question.
  answers = [answer("program 2")];
  editor.selection.active.line = 4;
  for (let n = 0; n < 3; n++) handlers.move({ textEditor: editor });
  await pause();
  seen.moved = panel.text;

  answers = [answer("program 3", { step: at, times: 3, problem: "error[E0330]: no\n  = help: yes" })];
  handlers.edit({ document: source });
  await pause();
  seen.edited = panel.text;
  seen.asked = asked.slice();

  let first;
  answers = [new Promise((done) => (first = done)), answer("new")];
  const early = panel.update();
  await panel.update();
  first(answer("old"));
  await early;
  seen.late = panel.text.endsWith("new") ? "the last one counts" : panel.text;

  answers = [null];
  await panel.update();
  seen["no server"] = panel.text.endsWith("new") ? "it stays" : panel.text;

  const count = asked.length;
  handlers.edit({ document: { languageId: "python", uri: uri("file:///a.py") } });
  handlers.move({ textEditor: program });
  await pause();
  seen["other language"] = asked.length === count ? "nobody is asked" : asked;

  vscode.window.visibleTextEditors = [editor];
  handlers.edit({ document: source });
  await pause();
  seen["out of sight"] = asked.length === count ? "nobody is asked" : asked;

  await panel.run("tensorc-dsl.show", ["file:///a.tsched", "small"], async () => answer("program of the lens"));
  seen.lens = panel.text;
  console.log(JSON.stringify(seen));
})();
