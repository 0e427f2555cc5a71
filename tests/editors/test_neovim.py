"""Neovim starts the language server once for each project, and its tree-sitter takes the parser and the queries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.syntax.fmt import format_text
from tests.editors import treesitter
from tests.editors.oracle import ROOT

SERVER = Path(__file__).parent / "server.py"


def neovim(script: str, folder: Path) -> str:
    """What Neovim prints when it runs a script in Lua."""
    if shutil.which("nvim") is None:
        pytest.skip("there is no nvim")
    file = folder / "script.lua"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["nvim", "-u", "NONE", "-i", "NONE", "-n", "--headless", "-c", f"luafile {file}", "-c", "qall!"],
        check=False, cwd=folder, timeout=120, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


PLAN = """
vim.opt.runtimepath:prepend("{root}/editors/vim")
vim.cmd("filetype plugin indent on | syntax on")
dofile("{root}/editors/neovim/tsched.lua").setup({{ command = {{ "{python}", "{server}", "{out}" }} }})
for _, name in ipairs({{ "one/a.tsched", "one/inner/b.tsched" }}) do
  vim.cmd("edit " .. name)
end
local function told(count)
  local file = io.open("{out}")
  local text = file and file:read("a") or ""
  return select(2, text:gsub("didOpen", "")) == count
end
assert(vim.wait(60000, function() return told(2) end, 20), "the server was not told of both files")
"""


def test_one_server_is_started_for_a_project(tmp_path: Path) -> None:
    project = tmp_path / "one"
    (project / "inner").mkdir(parents=True)
    (project / "pyproject.toml").write_text("", encoding="utf-8")
    files = [project / "a.tsched", project / "inner" / "b.tsched"]
    for file in files:
        file.write_text("const a = 1\n", encoding="utf-8")
    out = tmp_path / "said.json"
    neovim(PLAN.format(root=ROOT, python=sys.executable, server=SERVER, out=out), tmp_path)
    said = json.loads(out.read_text(encoding="utf-8"))
    assert [root for method, root, _, _ in said if method == "initialize"] == [project.as_uri()]
    opened = [(language, uri) for method, _, language, uri in said if method == "textDocument/didOpen"]
    assert opened == [("tsched", file.as_uri()) for file in files]


LIVE = """
vim.opt.runtimepath:prepend("{root}/editors/vim")
vim.cmd("filetype plugin indent on | syntax on")
local program = "from tensorc_dsl.faces.cli.main import main; main()"
dofile("{root}/editors/neovim/tsched.lua").setup({{ command = {{ "{python}", "-c", program, "lsp" }} }})
vim.cmd("edit f.tsched")
local seen = {{}}
local function until_told(what, holds)
  assert(vim.wait(60000, function() return holds(vim.diagnostic.get(0)) end, 20), what)
end
local function ask(method, params)
  local answers, problem = vim.lsp.buf_request_sync(0, "textDocument/" .. method, params, 60000)
  assert(answers, problem)
  for _, answer in pairs(answers) do
    return answer.result
  end
end
local function at(word)
  vim.fn.cursor(1, 1)
  assert(vim.fn.search(word, "c") > 0, word)
  return vim.lsp.util.make_position_params(0, "utf-16")
end
until_told("the slip is not told", function(found) return #found > 0 end)
seen.slip = vim.diagnostic.get(0)[1]
at("splti")
vim.cmd("normal! cwsplit")
until_told("the slip is still told", function(found) return #found == 0 end)
seen.hover = ask("hover", at("reorder")).contents.value
seen.definition = ask("definition", at("rows)"))[1].range.start.line
local layout = {{ tabSize = 4, insertSpaces = true }}
local edits = ask("formatting", {{ textDocument = vim.lsp.util.make_text_document_params(), options = layout }})
vim.lsp.util.apply_text_edits(edits, 0, "utf-16")
seen.text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), "\\n") .. "\\n"
local change = at("rows)")
change.newName = "tall"
vim.lsp.util.apply_workspace_edit(ask("rename", change), "utf-16")
seen.renamed = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), "\\n") .. "\\n"
local file = io.open("seen.json", "w")
file:write(vim.fn.json_encode(seen))
file:close()
vim.lsp.stop_client(vim.lsp.get_active_clients())
"""

WRITTEN = """\
compute mm(A: f32[M, K], B: f32[K, N]) -> C: f32[M, N] {
    C[i, j] = sum[k] A[i, k] * B[k, j]
}

schedule tiled for mm {
    let [i, j, k] = C.loops
    let rows ~ sample_perfect_tile(i, parts=2) // 🙂
    let [i0, i1] = splti(i, rows)
    reorder(i0, j,   k, i1)
}
task small = mm(M=16, N=16, K=8) with tiled
"""


def test_it_is_a_client_of_the_server(tmp_path: Path) -> None:
    """A slip is told and goes when it is mended, and what the server answers fits into the text."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "f.tsched").write_text(WRITTEN, encoding="utf-8")
    said = neovim(LIVE.format(root=ROOT, python=sys.executable), tmp_path)
    assert "Error" not in said, said
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert seen["slip"]["code"] == "E0223" and seen["slip"]["lnum"] == 7
    assert "reorder(" in seen["hover"]
    assert seen["definition"] == 6
    mended = WRITTEN.replace("splti", "split")
    assert seen["text"] == format_text(Source("f.tsched", mended))
    assert seen["renamed"] == seen["text"].replace("rows", "tall")


def test_a_missing_server_is_told_of(tmp_path: Path) -> None:
    said = neovim(f'dofile("{ROOT}/editors/neovim/tsched.lua").setup({{ command = {{ "nowhere", "lsp" }} }})', tmp_path)
    assert "nowhere is not a program here" in said


TREE = """
local path = "{library}"
if vim.treesitter.language and vim.treesitter.language.add then
  vim.treesitter.language.add("tsched", {{ path = path }})
else
  vim.treesitter.require_language("tsched", path)
end
local parse = vim.treesitter.query.parse or vim.treesitter.parse_query
for _, name in ipairs({{ "highlights", "folds", "locals", "injections", "indents" }}) do
  local file = assert(io.open("{queries}/" .. name .. ".scm"))
  assert(parse("tsched", file:read("a")).captures[1])
end
vim.cmd("edit {example}")
local root = vim.treesitter.get_parser(0, "tsched"):parse()[1]:root()
assert(root:type() == "file" and not root:has_error())
"""


def test_its_tree_sitter_takes_the_parser_and_the_queries(tmp_path: Path) -> None:
    if not treesitter.has_compiler():
        pytest.skip(treesitter.MISSING)
    example, queries = ROOT / "examples" / "own_module.tsched", treesitter.FOLDER / "queries"
    said = neovim(TREE.format(library=treesitter.library(tmp_path), queries=queries, example=example), tmp_path)
    assert "Error" not in said and "E5" not in said, said
