// The editor of the text, and the view of what it becomes.
import * as cm from "./codemirror.js";

/** A function that cuts a line into words, `[end, class]` each, by the patterns of all highlighters. A class may be null. */
export function scanner(highlight) {
  const rule = ([pattern, classes]) => ({ pattern: new RegExp(pattern, "y"), classes });
  const texts = highlight.texts.map(rule);
  const words = highlight.words.map(rule);
  const blank = /[ \t]+/y;
  const escape = new RegExp(highlight.escape, "y");
  const quoted = /[^"\\]+|\\/y;

  const at = (pattern, line, start) => {
    pattern.lastIndex = start;
    return pattern.exec(line);
  };

  function string(line, start, out) {
    out.push([start + 1, "string"]);
    for (let end = start + 1; end < line.length;) {
      if (line[end] === highlight.string) {
        out.push([end + 1, "string"]);
        return end + 1;
      }
      const found = at(escape, line, end);
      const part = found ?? at(quoted, line, end);
      end += part[0].length;
      out.push([end, found ? "escape" : "string"]);
    }
    return line.length;
  }

  function word(line, start, rules, out) {
    for (const { pattern, classes } of rules) {
      const found = at(pattern, line, start);
      if (!found) continue;
      let end = start;
      classes.forEach((name, n) => out.push([(end += found[n + 1].length), name]));
      return end;
    }
    return 0;
  }

  return (line) => {
    const out = [];
    for (let end = 0; end < line.length;) {
      const space = at(blank, line, end);
      if (space) {
        out.push([(end += space[0].length), null]);
        continue;
      }
      const next = word(line, end, texts, out)
        || (line[end] === highlight.string ? string(line, end, out) : word(line, end, words, out));
      if (!next) out.push([end + 1, null]);
      end = next || end + 1;
    }
    return out;
  };
}

/** The language for CodeMirror, from a scanner. No word goes on behind the end of its line. */
export function language(scan) {
  const tags = {};
  const names = [
    "comment", "doc", "keyword", "constant", "number", "string", "escape", "annotation", "definition", "type", "builtin",
    "primitive", "draw", "attribute", "name", "operator", "punctuation",
  ];
  // CodeMirror has meanings of its own for some of these names, such as `type`.
  for (const name of names) tags[`t-${name}`] = cm.Tag.define();
  const stream = cm.StreamLanguage.define({
    name: "tsched",
    startState: () => ({ words: [], next: 0 }),
    token(stream, state) {
      if (stream.sol()) [state.words, state.next] = [scan(stream.string), 0];
      const [end, name] = state.words[state.next++];
      stream.pos = end;
      return name && `t-${name}`;
    },
    tokenTable: tags,
    languageData: { commentTokens: { line: "//" }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
  });
  const styles = Object.entries(tags).map(([name, tag]) => ({ tag, class: name }));
  return [stream, cm.syntaxHighlighting(cm.tagHighlighter(styles))];
}

const setLines = cm.StateEffect.define();

/** Lines that stand out, by their numbers from 0. */
const marked = cm.StateField.define({
  create: () => cm.Decoration.none,
  update(lines, change) {
    lines = lines.map(change.changes);
    for (const effect of change.effects) {
      if (!effect.is(setLines)) continue;
      const builder = new cm.RangeSetBuilder();
      for (const [line, name] of effect.value) {
        if (line >= change.state.doc.lines) continue;
        const { from } = change.state.doc.line(line + 1);
        builder.add(from, from, cm.Decoration.line({ class: name }));
      }
      lines = builder.finish();
    }
    return lines;
  },
  provide: (field) => cm.EditorView.decorations.from(field),
});

/** Mark lines, and those that are refused in another way; the first of `lines` is scrolled to. */
export function mark(view, lines, refused = []) {
  const marks = [...lines.map((line) => [line, "marked"]), ...refused.map((line) => [line, "refused"])];
  const effects = [setLines.of(marks.sort((a, b) => a[0] - b[0]))];
  if (lines.length && lines[0] < view.state.doc.lines) {
    effects.push(cm.EditorView.scrollIntoView(view.state.doc.line(lines[0] + 1).from, { y: "center" }));
  }
  view.dispatch({ effects });
}

export function offset(doc, { line, character }) {
  if (line >= doc.lines) return doc.length;
  const found = doc.line(line + 1);
  return Math.min(found.from + character, found.to);
}

function position(doc, at) {
  const line = doc.lineAt(at);
  return { line: line.number - 1, character: at - line.from };
}

export function apply(view, edits) {
  const doc = view.state.doc;
  view.dispatch({
    changes: edits.map(({ at, text }) => ({ from: offset(doc, at.start), to: offset(doc, at.end), insert: text })),
    userEvent: "input",
  });
}

/** Show the findings in the text, each with its repairs. */
export function show(view, findings) {
  const doc = view.state.doc;
  view.dispatch(cm.setDiagnostics(view.state, findings.map((f) => ({
    from: offset(doc, f.at.start),
    to: offset(doc, f.at.end),
    severity: f.grade,
    source: f.code,
    message: f.message,
    actions: f.fixes.map((fix) => ({ name: fix.title, apply: (view) => apply(view, fix.edits) })),
  }))));
}

function common(data) {
  return [
    cm.EditorView.cspNonce.of(data.nonce),
    cm.lineNumbers(),
    cm.highlightSpecialChars(),
    cm.highlightSelectionMatches(),
    marked,
  ];
}

const KINDS = { module: "namespace", struct: "type", operator: "function" };

/** What can stand at the cursor, asked once a word is begun or a sign that something follows is written. */
function completions(complete) {
  return async (context) => {
    const word = context.matchBefore(/\w*/);
    const begun = word.from < word.to || context.matchBefore(/(?:[.({,]|~ ?)/);
    if (!begun && !context.explicit) return null;
    const offers = await complete(position(context.state.doc, context.pos));
    if (!offers.length || context.aborted) return null;
    const options = offers.map((o) => ({
      label: o.text,
      type: KINDS[o.kind] ?? o.kind,
      detail: o.detail.length > 60 ? `${o.detail.slice(0, 60)} …` : o.detail,
      boost: -10 * o.order,
      info: o.about ? () => description(o.about) : undefined,
    }));
    return { from: word.from, options, validFor: /^\w*=?$/ };
  };
}

/** HTML from the server, in which whatever the text says is text. */
function description(html) {
  const made = document.createElement("div");
  made.className = "about";
  made.innerHTML = html;
  return made;
}

/** What the name at a place is, as a tooltip; null where there is nothing to be said. */
async function tooltip(describe, state, at) {
  const { about, at: range } = await describe(position(state.doc, at));
  if (!about) return null;
  const [pos, end] = [offset(state.doc, range.start), offset(state.doc, range.end)];
  const dom = document.createElement("div");
  dom.append(description(about));
  return { pos, end, above: true, create: () => ({ dom }) };
}

const setTooltip = cm.StateEffect.define();

/** The tooltip that a key has asked for; it goes with the next change or movement. */
const asked = cm.StateField.define({
  create: () => null,
  update(now, change) {
    for (const effect of change.effects) if (effect.is(setTooltip)) return effect.value;
    return change.docChanged || change.selection ? null : now;
  },
  provide: (field) => cm.showTooltip.from(field),
});

function describing(describe) {
  const show = (view) => {
    const { state } = view;
    tooltip(describe, state, state.selection.main.head).then((found) => {
      const isThere = view.state.doc.eq(state.doc) && view.state.selection.eq(state.selection);
      if (found && isThere) view.dispatch({ effects: setTooltip.of(found), scrollIntoView: true });
    });
    return true;
  };
  const hide = (view) => {
    if (!view.state.field(asked)) return false;
    view.dispatch({ effects: setTooltip.of(null) });
    return true;
  };
  return [
    cm.hoverTooltip((view, at) => tooltip(describe, view.state, at)),
    asked,
    cm.keymap.of([{ key: "F1", run: show, preventDefault: true }, { key: "Escape", run: hide }]),
  ];
}

/** The editor of a text. `complete` and `describe` are asked about a place of it. */
export function editor(data, tsched, parent, changed, { complete, describe }) {
  return new cm.EditorView({
    parent,
    doc: data.text,
    extensions: [
      common(data),
      tsched,
      cm.history(),
      cm.drawSelection(),
      cm.highlightActiveLine(),
      cm.highlightActiveLineGutter(),
      cm.bracketMatching(),
      cm.closeBrackets(),
      cm.autocompletion({ override: [completions(complete)], icons: false, maxRenderedOptions: 200 }),
      describing(describe),
      cm.indentUnit.of("    "),
      cm.lintGutter(),
      cm.EditorView.contentAttributes.of({ "aria-label": data.name }),
      cm.keymap.of([
        ...cm.completionKeymap, ...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.searchKeymap, ...cm.historyKeymap,
        ...cm.lintKeymap, cm.indentWithTab,
      ]),
      cm.EditorView.updateListener.of((update) => update.docChanged && changed()),
    ],
  });
}

/** A view that nobody edits; `put` replaces its text, which is coloured if it is in the language. */
export function viewer(data, tsched, parent) {
  const colours = new cm.Compartment();
  const view = new cm.EditorView({
    parent,
    extensions: [
      common(data),
      colours.of(tsched),
      cm.keymap.of([...cm.defaultKeymap, ...cm.searchKeymap]),
      cm.EditorState.readOnly.of(true),
      cm.EditorView.contentAttributes.of({ "aria-label": "The program or its code", tabindex: "0" }),
    ],
  });
  const put = (text, isProgram) => view.dispatch({
    changes: { from: 0, to: view.state.doc.length, insert: text },
    effects: colours.reconfigure(isProgram ? tsched : []),
  });
  return { view, put };
}
