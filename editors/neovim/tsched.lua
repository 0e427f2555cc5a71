-- The language server for Neovim 0.7 and later: `require("tsched").setup()`, with this file as `lua/tsched.lua` of the
-- configuration. `setup({ command = { "/path/to/.venv/bin/tensorc-dsl", "lsp" } })` names another program.
local M = {}

-- Where a project begins: what other files can be used is looked for from there.
local MARKS = { "pyproject.toml", ".git" }

local function root(path)
  local folder = vim.fn.fnamemodify(path, ":p:h")
  local at = folder
  while true do
    for _, mark in ipairs(MARKS) do
      if vim.loop.fs_stat(at .. "/" .. mark) then
        return at
      end
    end
    local above = vim.fn.fnamemodify(at, ":h")
    if above == at then
      return folder
    end
    at = above
  end
end

-- One server for each project.
local clients = {}

local function attach(buffer, options)
  local name = vim.api.nvim_buf_get_name(buffer)
  if name == "" or vim.bo[buffer].buftype ~= "" then
    return
  end
  local at = root(name)
  local id = clients[at]
  if not id or not vim.lsp.get_client_by_id(id) then
    id = vim.lsp.start_client({
      name = "tensorc-dsl",
      cmd = options.command,
      root_dir = at,
      workspace_folders = { { uri = vim.uri_from_fname(at), name = at } },
    })
    clients[at] = id
  end
  if id then
    vim.lsp.buf_attach_client(buffer, id)
  end
end

function M.setup(options)
  options = vim.tbl_extend("keep", options or {}, { command = { "tensorc-dsl", "lsp" } })
  if vim.fn.executable(options.command[1]) == 0 then
    vim.notify(options.command[1] .. " is not a program here: tsched files have no language server", vim.log.levels.WARN)
    return
  end
  vim.api.nvim_create_autocmd("FileType", {
    group = vim.api.nvim_create_augroup("tsched", {}),
    pattern = "tsched",
    callback = function(event)
      attach(event.buf, options)
    end,
  })
end

return M
