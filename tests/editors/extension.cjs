// Runs the extension against a VS Code that writes down what it is told, and prints that.
const Module = require("module");
const said = [];
const settings = { command: "broken" };
let changed;
let restart;

class LanguageClient {
  constructor(id, name, server) {
    this.command = [server.command, ...server.args].join(" ");
  }
  async start() {
    said.push(`start ${this.command}`);
    if (this.command.startsWith("broken")) throw new Error("not found");
  }
  async stop() {
    said.push(`stop ${this.command}`);
    if (this.command.startsWith("dead")) throw new Error("it has ended");
  }
}

const nothing = () => ({});

const vscode = {
  EventEmitter: class {},
  workspace: {
    registerTextDocumentContentProvider: nothing,
    onDidChangeTextDocument: nothing,
    getConfiguration: () => ({ get: (key) => settings[key] }),
    onDidChangeConfiguration: (f) => ((changed = f), {}),
  },
  // A question that nobody answers.
  window: {
    showWarningMessage: (text) => (said.push(text), new Promise(() => {})),
    onDidChangeTextEditorSelection: nothing,
  },
  commands: {
    registerCommand: (name, f) => (name === "tensorc-dsl.restart" && (restart = f), {}),
    executeCommand: async () => {},
  },
};

const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);

(async () => {
  const { activate, deactivate } = require(require("path").resolve(process.argv[2]));
  activate({ subscriptions: [] });
  await new Promise(setImmediate);
  settings.command = "dead";
  await changed({ affectsConfiguration: (key) => key === "tensorc-dsl.command" });
  settings.command = "good";
  await Promise.all([restart(), restart()]);
  await deactivate();
  console.log(JSON.stringify(said));
})();
