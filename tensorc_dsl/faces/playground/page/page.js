// The page: it asks what is wrong in the text and what its task becomes, one question after another, and shows the answers.
import { apply, editor, language, mark, offset, scanner, show, viewer } from "./editor.js";

const data = JSON.parse(document.getElementById("data").textContent);
const at = Object.fromEntries([...document.querySelectorAll("[id]")].map((x) => [x.id, x]));
const PAUSE = 150; // milliseconds without a key after which the text is checked
const FEW = 6; // values that stand beside each other; more have a slider

const state = { tasks: [], wrong: true, decisions: {}, seed: 0, stage: "program", step: null, shown: null };

const scan = scanner(data.highlight);
const tsched = language(scan);
const text = editor(data, tsched, at.editor, () => soon(), {
  complete: async (where) => (await word("Complete", where)).offers ?? [],
  describe: async (where) => word("Describe", where),
});
const { view: result, put } = viewer(data, tsched, at.program);

// For the tests: the words of a text with their classes.
window.playground = { text, words: (whole) => whole.split("\n").map(scan), state };

// --- questions -------------------------------------------------------------------------------------------------------

async function ask(question) {
  const answer = await fetch("ask", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** What the server says of a place of the text; nothing if it cannot. */
async function word(type, where) {
  try {
    return await ask({ type, text: written(), at: where });
  } catch {
    return {}; // the next check tells why
  }
}

let questions = 0;

/** Count a question that is begun or answered; the page shows that it waits as long as there are any. */
function count(change) {
  questions += change;
  document.body.classList.toggle("busy", questions > 0);
}

/** A function that asks: one question at a time, and of those that come meanwhile only the last. */
function asking(take) {
  let next = null;
  let busy = false;
  return async (question) => {
    next = question;
    if (busy) return;
    busy = true;
    count(+1);
    while (next) {
      const now = next;
      next = null;
      try {
        const answer = await ask(now);
        take(answer, now, next !== null);
      } catch (e) {
        const ended = e instanceof TypeError;
        say(ended ? "the playground has ended: copy the text, and start `tensorc-dsl serve` again" : e.message, true);
        document.body.classList.add("stale"); // the program is that of an earlier question
      }
    }
    busy = false;
    count(-1);
  };
}

const check = asking((answer, asked, more) => !more && asked.text === written() && takeFindings(answer));
const become = asking((answer, asked, more) => takeProgram(answer, more));

let waiting = 0;

function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(look, PAUSE);
}

function look() {
  check({ type: "Check", text: written() });
}

/** The text; halves of characters, which JSON cannot hold, are other characters of the same length. */
function written() {
  return String(text.state.doc).toWellFormed();
}

function program() {
  if (state.wrong || !at.task.value) return;
  const { decisions, seed, stage, step } = state;
  become({
    type: "Show", text: written(), task: at.task.value, decisions: { ...decisions }, seed, stage,
    step: stage === "program" ? step : null,
  });
}

function say(words, isFailure = false) {
  at.status.textContent = words;
  at.status.classList.toggle("failure", isFailure);
}

// --- findings --------------------------------------------------------------------------------------------------------

function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function takeFindings(answer) {
  if (answer.type === "Refused") return say(answer.message.split("\n")[0]);
  const { findings, tasks, wrong } = answer;
  show(text, findings);
  const ofGrade = (grade) => findings.filter((f) => f.grade === grade).length;
  const grades = [["error", "error"], ["warning", "warning"], ["info", "note"]].filter(([grade]) => ofGrade(grade));
  const said = grades.map(([grade, word]) => counted(ofGrade(grade), word));
  at["problems-title"].textContent = said.join(", ") || "Nothing is wrong";
  at.problems.replaceChildren(...findings.map(item));
  state.wrong = wrong;
  document.body.classList.toggle("stale", state.wrong);
  if (state.wrong) {
    return say(state.shown ? "the program is that of the last text without errors" : "there is no program of a text with errors");
  }
  takeTasks(tasks);
  if (!tasks.length) return say("the text has no task: `task small = f(M=64)` makes one of a compute `f`");
  program();
}

function item(f) {
  const go = element("button", { type: "button", className: "place" }, `${f.at.start.line + 1}:${f.at.start.character + 1}`);
  go.onclick = () => {
    text.dispatch({ selection: { anchor: offset(text.state.doc, f.at.start) }, scrollIntoView: true });
    text.focus();
  };
  const fixes = f.fixes.map((fix) => {
    const button = element("button", { type: "button", className: "fix" }, fix.title);
    button.onclick = () => apply(text, fix.edits);
    return button;
  });
  const [message, ...notes] = f.message.split("\n");
  const said = element("span", { className: "message" }, message, ...notes.map((n) => element("small", {}, n)));
  const code = element("code", {}, f.code);
  return element("li", { className: f.grade }, go, code, said, ...fixes);
}

function takeTasks(tasks) {
  if (String(tasks) === String(state.tasks)) return;
  const before = at.task.value;
  state.tasks = tasks;
  at.task.replaceChildren(...tasks.map((name) => element("option", { value: name }, name)));
  if (tasks.includes(before)) at.task.value = before;
  else if (before) forget(); // draws of another task have their own values
}

// --- the program -----------------------------------------------------------------------------------------------------

function takeProgram(answer, more) {
  if (answer.type === "Refused") {
    at.problem.textContent = answer.message;
    at.problem.hidden = false;
    document.body.classList.add("stale");
    if (state.shown) keep(state.shown.draws), takeDraws(state.shown.draws); // a value that is none was typed
    return say("there is no program");
  }
  state.shown = answer;
  document.body.classList.toggle("stale", state.wrong);
  if (!more) keep(answer.draws);
  takeRecord(answer.record);
  takeStages(answer);
  takeDraws(answer.draws, more);
  takeSteps(answer, more);
  at.redrawn.replaceChildren(...answer.redrawn.map((words) => element("li", {}, words)));
  at.problem.textContent = answer.problem;
  at.problem.hidden = !answer.problem;
  const isProgram = state.stage === "program" || state.stage === "loops";
  put(answer.text.trimEnd(), isProgram);
  mark(result, answer.changed);
  const title = TITLES[state.stage] ?? state.stage;
  const ended = answer.early ? "the schedule ends early: " : answer.problem ? `there is no ${title} here: ` : "";
  say(`${ended}${counted(answer.steps.length, "step")}, ${counted(answer.draws.length, "draw")}`);
}

function keep(draws) {
  for (const d of draws) if (!d.pinned) state.decisions[d.name] = d.value;
}

function takeRecord(record) {
  at.best.disabled = !record;
  at.best.title = record ? `Take the decisions of the ${record.said}` : "No search has recorded this task on this machine";
}

const TITLES = { program: "Program", loops: "Loops", llvm: "LLVM", asm: "Assembly", ptx: "PTX", cuda: "CUDA", sass: "SASS" };

function takeStages({ stages }) {
  const names = stages.map(([name]) => name);
  if (!names.includes(state.stage)) state.stage = "program";
  if (String(names) !== String([...at.stages.children].map((tab) => tab.dataset.name))) {
    at.stages.replaceChildren(...stages.map(([name, about]) => {
      const tab = element("button", { type: "button", title: about }, TITLES[name] ?? name);
      tab.dataset.name = name;
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", "program");
      tab.onclick = () => ((state.stage = name), choose(), program());
      return tab;
    }));
    at.stages.onkeydown = (event) => {
      const tabs = [...at.stages.children];
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      const next = tabs[(tabs.indexOf(document.activeElement) + move + tabs.length) % tabs.length];
      next.focus();
      next.click();
    };
  }
  choose();
}

function choose() {
  for (const tab of at.stages.children) {
    const isChosen = tab.dataset.name === state.stage;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
  }
  at.steps.hidden = state.stage !== "program";
}

function takeSteps({ steps, step, at: refused }, more) {
  at.step.max = steps.length;
  if (!more) at.step.value = step;
  at["step-of"].textContent = `${step} of ${steps.length}`;
  const last = steps[step - 1];
  at["step-text"].textContent = last ? `${last.place ? `${last.place}: ` : ""}${last.text}` : "before the first step";
  at["step-text"].title = at["step-text"].textContent;
  at.back.disabled = step === 0;
  at.forth.disabled = step === steps.length;
  const own = state.stage === "program" && state.step !== null && last?.at;
  mark(text, own ? linesOf(last.at) : [], refused ? linesOf(refused) : []);
}

function linesOf({ start, end }) {
  return Array.from({ length: end.line - start.line + 1 }, (_, n) => start.line + n);
}

function toStep(step) {
  const count = state.shown?.steps.length ?? 0;
  const wanted = Math.max(0, Math.min(count, step));
  state.step = wanted === count ? null : wanted;
  program();
}

at.step.oninput = () => toStep(Number(at.step.value));
at.back.onclick = () => toStep(Number(at.step.value) - 1);
at.forth.onclick = () => toStep(Number(at.step.value) + 1);

// --- draws -----------------------------------------------------------------------------------------------------------

const rows = new Map();

function takeDraws(draws, more) {
  at["draws-count"].textContent = draws.length ? `(${draws.length})` : "(none)";
  const shown = draws.map((d) => {
    const kind = d.pinned ? "pinned" : d.values.length > FEW ? "slider" : "buttons";
    let row = rows.get(d.name);
    if (!row || row.kind !== kind) rows.set(d.name, (row = { kind, ...KINDS[kind](d.name) }));
    if (!more) row.put(d);
    return row.element;
  });
  const there = new Set(draws.map((d) => d.name));
  for (const name of [...rows.keys()]) if (!there.has(name)) rows.delete(name);
  // What is dragged stays where it is in the page.
  const now = [...at.draws.children];
  if (now.length !== shown.length || now.some((x, n) => x !== shown[n])) at.draws.replaceChildren(...shown);
}

function decide(name, value) {
  state.decisions[name] = value;
  program();
}

/** A row with the name of a draw, and buttons that take the value of the best record, and write the value into the text. */
function row(name, kind, ...inputs) {
  const best = element("button", { type: "button", className: "best" });
  const pin = element("button", { type: "button", className: "pin", title: "Write this value into the text" }, "pin");
  pin.setAttribute("aria-label", `pin ${name}`);
  const label = element("span", { className: "draw", id: `draw-${name}` }, name);
  const made = element("div", { className: `row ${kind}` }, label, ...inputs, best, pin);
  made.setAttribute("role", "group");
  made.setAttribute("aria-labelledby", label.id);
  const put = (d) => {
    label.title = `${d.name}: ${d.legal}`;
    const doc = text.state.doc;
    const written = d.at ? doc.sliceString(offset(doc, d.at.start), offset(doc, d.at.end)) : "";
    best.hidden = d.pinned || !d.best;
    best.textContent = `⟵ ${d.best}`;
    best.title = `Take the value of the best record, ${d.best}`;
    best.disabled = d.best === d.value;
    best.onclick = () => decide(name, d.best);
    pin.hidden = d.pinned || !/^let\s[^]*~/.test(written);
    pin.onclick = () => apply(text, [{ at: { start: d.at.end, end: d.at.end }, text: ` := ${d.value}` }]);
  };
  return { element: made, put };
}

const KINDS = {
  slider(name) {
    const input = element("input", { type: "range", min: 0 });
    const typed = element("input", { type: "text", spellcheck: false });
    input.setAttribute("aria-labelledby", `draw-${name}`);
    typed.setAttribute("aria-labelledby", `draw-${name}`);
    const made = row(name, "slider", input, typed);
    let values = [];
    const tell = (value) => {
      typed.value = value;
      typed.size = Math.max(8, value.length);
      input.setAttribute("aria-valuetext", value);
    };
    input.oninput = () => (tell(values[input.value]), decide(name, values[input.value]));
    typed.onchange = () => decide(name, typed.value.trim());
    const put = (d) => {
      values = d.values;
      input.max = values.length - 1;
      input.value = values.indexOf(d.value);
      input.title = d.whole ? `all ${values.length} values` : `the ${values.length} values nearest to this one`;
      typed.title = `${d.legal}`;
      tell(d.value);
      made.put(d);
    };
    return { element: made.element, put };
  },
  buttons(name) {
    const box = element("span", { className: "values" });
    const made = row(name, "buttons", box);
    let values = [];
    const put = (d) => {
      if (String(d.values) !== String(values)) {
        values = d.values;
        box.replaceChildren(...values.map((value) => {
          const input = element("input", { type: "radio", name: `draw-${name}`, value });
          input.onchange = () => decide(name, value);
          return element("label", {}, input, element("span", {}, value));
        }));
      }
      for (const input of box.querySelectorAll("input")) input.checked = input.value === d.value;
      made.put(d);
    };
    return { element: made.element, put };
  },
  pinned(name) {
    const output = element("output");
    const made = row(name, "pinned", element("span", { className: "note" }, "pinned in the text"), output);
    const put = (d) => {
      output.textContent = d.value;
      made.put(d);
    };
    return { element: made.element, put };
  },
};

// --- the buttons above -----------------------------------------------------------------------------------------------

function forget() {
  state.decisions = {};
  state.step = null;
}

at.task.onchange = () => (forget(), program());
at.redraw.onclick = () => ((state.decisions = {}), (state.seed = Math.floor(Math.random() * 2 ** 31)), program());
at.best.onclick = () => ((state.decisions = { ...state.shown.record.decisions }), program());
at.reset.onclick = () => (forget(), (state.seed = 0), program());

look();
