"use strict";
// The live page of mray: asks its server for records, draws them, and asks again. It stores no state.

const [TOKEN, WANTED] = location.hash.slice(1).split(":");
const $ = (selector, inside = document) => inside.querySelector(selector);
const QUICKEST = 1000, KEPT_LOOKS = 30;
const page = { tab: "processes", session: "", sessions: [], now: null, before: null, sort: {}, pid: null, process: null, tiles: new Set(), graph: "", pictures: new Map(), looks: new Map(), of: {}, files: null, printed: { lines: [] }, seconds: 10, tasks: null, objects: null };

// ---------------------------------------------------------------------------------------------- asking
async function ask(path, query = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams({ session: page.session, ...query })}`, { headers: { "X-Token": TOKEN } });
  const text = await answer.text();
  let found;
  try { found = JSON.parse(text); } catch { throw new Error(text || `status ${answer.status}`); }
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// What went wrong stays in sight, above everything else: what is shown then is of an earlier time.
function say(text, bad = false) {
  $("#state").textContent = bad ? "" : text;
  $("#bad").hidden = !bad;
  $("#bad").textContent = bad ? `${text}${page.now ? `; what is shown is of ${page.now.time}` : ""}` : "";
  document.body.classList.toggle("stale", bad);
}

async function round() {
  const began = performance.now();
  try {
    page.sessions = await ask("sessions");
    if (!page.sessions.some((each) => each.session_dir === page.session)) {
      const gone = page.session;
      const next = page.sessions.find((each) => each.name === WANTED) || page.sessions[0];
      if (!gone || next) choose(next ? next.session_dir : "", gone);
      if (gone && !page.sessions.length) { say(`${nameOf(gone)} has ended`, true); return began; }
    }
    drawSessions();
    if (!page.session) { say("no session is running"); draw(); return began; }
    const found = await ask("look");
    page.before = page.now;
    page.now = { ...found, moment: performance.now(), time: new Date().toLocaleTimeString() };
    note();
    if (page.tab === "tasks") page.tasks = await ask("tasks");
    if (page.tab === "logs") await readLog();
    say(`asked ${page.now.time}, ${Math.round(performance.now() - began)} ms`);
    draw();
  } catch (error) {
    say(error instanceof TypeError ? "the program that serves this page has ended" : error.message, true);
  }
  return began;
}

async function forever() {
  for (;;) {
    const began = await round();
    const took = performance.now() - began;
    await new Promise((done) => setTimeout(done, Math.max(QUICKEST, 3 * took)));
    if (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }
}

function choose(directory, ended = "") {
  Object.assign(page, { session: directory, ended, now: null, before: null, pid: null, process: null, tiles: new Set(), graph: "", of: {}, files: null, printed: { lines: [] }, tasks: null, objects: null });
  page.pictures.clear();
  page.looks.clear();
  $("#detail").hidden = true;
}

// Samples at which edges of graphs a process waits.
function note() {
  for (const channel of page.now.channels) {
    const seen = page.looks.get(channel.channel_id) || [];
    const graph = page.now.graphs.find((each) => each.graph_id === channel.graph_id);
    if (graph && graph.in_flight) seen.push(channel.awaited_by.length ? 1 : 0);
    page.looks.set(channel.channel_id, seen.slice(-KEPT_LOOKS));
  }
}

// ---------------------------------------------------------------------------------------------- words
const escape = (text) => String(text ?? "").replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const nameOf = (directory) => directory.split("/").pop();
function bytes(count) {
  if (!count) return count === 0 ? "0" : "";
  for (const unit of ["B", "K", "M", "G"]) {
    if (count < 999.5 || unit === "G") return unit === "B" ? `${count} B` : `${count.toFixed(count < 99.95 ? 1 : 0)} ${unit}`;
    count /= 1024;
  }
}
const figure = (number) => number === null || number === undefined || Number.isNaN(number) ? "" : number >= 100 ? Math.round(number).toLocaleString("en") : Number(number.toPrecision(3)).toString();
function duration(seconds) {
  const [size, unit] = [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"]].filter(([least]) => seconds >= least).pop() || [1e-6, "µs"];
  return seconds === null || seconds === undefined ? "" : `${figure(seconds / size)} ${unit}`;
}
const counted = (number, noun, many = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;
const GOOD = /^(ALIVE|FINISHED|CREATED|RUNNING|idle|graph)$/, BUSY = /^(busy|RUNNING)$/, BAD = /^(DEAD|FAILED|BROKEN)$/, WARN = /PENDING|RESTARTING|restarting|starting|DEPENDENCIES|SUBMITTED/;
const stateClass = (word) => BUSY.test(word) ? "busy" : GOOD.test(word) ? "good" : BAD.test(word) ? "bad" : WARN.test(word) ? "warn" : "";

// Sentences about processes, those that differ in the process alone as one.
function folded(sentences) {
  const reasons = new Map();
  for (const each of sentences) {
    const [, process, reason] = /^(.*? of pid \d+):? (.*)$/.exec(each) || [null, "", each];
    reasons.set(reason, [...(reasons.get(reason) || []), process]);
  }
  return [...reasons].map(([reason, found]) => `${found.slice(0, 3).join(", ")}${found.length > 3 ? ` and ${found.length - 3} more` : ""}${found[0] ? ": " : ""}${reason}`);
}

// A number's growth per second since the last poll.
function rate(row, column, key, rows) {
  if (!page.before || row[column] === null) return null;
  const old = page.before[rows].find((each) => each[key] === row[key]);
  return old && old[column] !== null ? Math.max(0, row[column] - old[column]) / ((page.now.moment - page.before.moment) / 1000) : null;
}

// ---------------------------------------------------------------------------------------------- tables
// A column: title, value of a row, how it is shown, and its class.
const state = (value) => ["state", value, (word) => `<span class="state ${stateClass(word)}">${escape(word)}</span>`];
const text = (title, value, more = "") => [title, value, escape, `long ${more}`];
const number = (title, value, shown = figure, more = "") => [title, value, (found) => escape(shown(found)), `number ${more}`];
const bar = (title, value, most, more = "") => [title, value, (found) => `<span>${escape(bytes(found))}</span>`, `number bar ${more}`, most];

const hasGpus = () => page.now.nodes[0]?.gpus?.length;
const mostMemory = () => Math.max(1, ...page.now.workers.map((each) => memory(each) || 0));
const memory = (row) => row.pss_bytes ?? row.rss_bytes;
const whose = (row) => row.shown_as || "";
const processColumns = () => [
  number("pid", (row) => row.pid, String),
  state((row) => row.state || row.worker_type.toLowerCase()),
  text("what", whose),
  number("CPU %", (row) => row.cpu, (found) => found.toFixed(0)),
  bar("memory", memory, mostMemory()),
  number("RSS", (row) => row.rss_bytes, bytes, "wide"),
  ...(hasGpus() ? [number("GPU memory", (row) => row.gpu_bytes, bytes)] : []),
  number("objects", (row) => row.object_store_bytes, bytes, "wide"),
  number("calls/s", (row) => row.calls, figure, "wide"),
  number("queued", (row) => row.num_queued || null),
  text("runs", (row) => row.current_task),
  text("waits for", (row) => (row.waits_for || []).join("; "), "wide"),
];
const actorColumns = () => [
  text("name", (row) => row.name || row.actor_id.slice(0, 8)),
  text("class", (row) => row.class_name),
  state((row) => row.state),
  number("pid", (row) => row.pid || null, String),
  number("CPU %", (row) => row.cpu, (found) => found.toFixed(0)),
  bar("memory", memory, mostMemory()),
  number("RSS", (row) => row.rss_bytes, bytes, "wide"),
  ...(hasGpus() ? [number("GPU memory", (row) => row.gpu_bytes, bytes)] : []),
  number("calls/s", (row) => row.calls, figure, "wide"),
  number("queued", (row) => row.num_queued || null),
  text("runs", (row) => row.current_task),
  number("restarts", (row) => row.num_restarts || null, String, "wide"),
  text("why it is dead", (row) => row.state === "DEAD" && row.death_cause ? row.death_cause.text : "", "wide"),
];
const seconds = (row) => row.seconds;
const taskColumns = () => [
  text("name", (row) => row.name),
  state((row) => row.state),
  text("type", (row) => row.type.toLowerCase().replaceAll("_", " "), "wide"),
  number("pid", (row) => row.worker_pid, String),
  number("time", seconds, duration),
  text("begun", (row) => row.start_time_ms ? new Date(row.start_time_ms).toLocaleTimeString() : "", "wide"),
  text("waits for", (row) => (row.waits_for || []).map((each) => `object ${each.slice(0, 8)}`).join(", "), "wide"),
  text("error", (row) => row.error_type),
];
const objectColumns = () => [
  text("object", (row) => row.object_id.slice(0, 16)),
  number("size", (row) => Math.max(row.object_size, 0), bytes),
  text("where", (row) => row.storage),
  text("kind", (row) => row.reference_type.toLowerCase().replaceAll("_", " "), "wide"),
  text("status", (row) => row.task_status, "wide"),
  number("pid", (row) => row.pid, String),
];
const ownerColumns = () => [
  number("pid", (row) => row.pid, String),
  text("what", whose),
  bar("shared memory", (row) => row.object_store_bytes, Math.max(1, ...page.now.workers.map((each) => each.object_store_bytes || 0))),
  number("kept for reuse", (row) => row.pooled_bytes, bytes),
  number("on disk", (row) => row.spilled_bytes, bytes),
];

function table(kind, columns, rows, pid = (row) => row.pid) {
  const wanted = $("#filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  let shown = rows.filter((row) => { const said = columns.map((each) => each[1](row)).join(" ").toLowerCase(); return wanted.every((word) => said.includes(word)); });
  const [by, up] = page.sort[kind] || [];
  const order = columns.find((each) => each[0] === by);
  if (order) {
    const key = (row) => order[1](row) ?? "";
    shown = [...shown].sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * (up ? 1 : -1));
  }
  $("#count").textContent = wanted.length ? `${shown.length} of ${rows.length}` : "";
  const head = columns.map(([title, , , more]) => `<th class="${more || ""}" data-kind="${kind}" data-by="${escape(title)}"${title === by ? ` aria-sort="${up ? "ascending" : "descending"}"` : ""}>${escape(title)}</th>`);
  const body = shown.map((row) => {
    const own = pid(row);
    const cells = columns.map(([, value, show, more, most]) => {
      const found = value(row);
      const share = most ? ` style="--share:${Math.min(1, (found || 0) / most)}"` : "";
      const title = (more || "").includes("long") && found ? ` title="${escape(found)}"` : "";
      return `<td class="${more || ""}"${share}${title}>${found === null || found === undefined ? "" : show(found)}</td>`;
    });
    return `<tr${own ? ` data-pid="${own}" tabindex="0"` : ""}${own && own === page.pid ? ' class="chosen"' : ""}>${cells.join("")}</tr>`;
  });
  return rows.length ? `<div class="table"><table><thead><tr>${head.join("")}</tr></thead><tbody>${body.join("")}</tbody></table></div>` : '<p class="dim">none</p>';
}

function processes() {
  const living = page.now.workers.filter((each) => each.is_alive);
  for (const row of living) {
    const spent = rate(row, "cpu_seconds", "worker_id", "workers");
    row.cpu = spent === null ? null : 100 * spent;
    row.calls = rate(row, "num_finished", "worker_id", "workers");
  }
  return living.sort((one, other) => (other.worker_type === "DRIVER") - (one.worker_type === "DRIVER") || Math.round((other.cpu || 0) / 5) - Math.round((one.cpu || 0) / 5) || one.pid - other.pid);
}

function actors() {
  const homes = new Map(processes().map((each) => [each.worker_id, each]));
  return page.now.actors.map((row) => {
    const home = row.state === "DEAD" ? undefined : homes.get(row.worker_id);
    return { ...row, cpu: home?.cpu, calls: home?.calls, pss_bytes: home?.pss_bytes, rss_bytes: home?.rss_bytes, gpu_bytes: home?.gpu_bytes };
  });
}

// ---------------------------------------------------------------------------------------------- views
const TABS = {
  processes: () => table("processes", processColumns(), processes()),
  actors: () => table("actors", actorColumns(), actors(), (row) => row.state === "DEAD" ? 0 : row.pid),
  tasks: () => page.tasks ? table("tasks", taskColumns(), page.tasks.rows, (row) => page.now.workers.some((each) => each.is_alive && each.pid === row.worker_pid) ? row.worker_pid : 0) + (page.tasks.total > page.tasks.rows.length ? `<p class="dim">${page.tasks.rows.length} of ${page.tasks.total}; finished ones last</p>` : "") : '<p class="dim">asks ...</p>',
  graphs,
  objects: () => table("owners", ownerColumns(), page.now.workers.filter((each) => each.is_alive).sort((one, other) => other.object_store_bytes - one.object_store_bytes || one.pid - other.pid)) + '<p><button type="button" id="largest">search for the largest objects</button> <span class="dim">every process goes through all its objects</span></p>' + (page.objects ? table("objects", objectColumns(), page.objects.rows) : ""),
  timeline: () => null,
  logs: () => null,
};

// A value, and below it a bar or a few words. All have one height, and a tile that was shown stays, so that nothing moves.
function tile(title, value, { share, more = "" } = {}) {
  const part = Number.isFinite(share) ? `<i style="--share:${Math.min(1, Math.max(0, share))}"></i>` : `<small>${escape(more)}</small>`;
  return `<div class="tile" title="${escape(`${title}: ${value}${more ? `, ${more}` : ""}`)}"><small>${escape(title)}</small><b>${escape(value)}</b>${part}</div>`;
}

function drawTiles() {
  if (!page.now) { $("#tiles").innerHTML = ""; return; }
  const { nodes: [node], workers, actors, graphs, demands, object_store_memory, load, cores } = page.now;
  const total = node.resources_total, free = node.resources_available || {};
  const living = workers.filter((each) => each.is_alive), held = living.reduce((sum, each) => sum + (memory(each) || 0), 0);
  const counts = actors.reduce((found, each) => ({ ...found, [each.state]: (found[each.state] || 0) + 1 }), {});
  const others = Object.keys(counts).filter((each) => each !== "ALIVE").map((word) => `${counts[word]} ${word.toLowerCase().replaceAll("_", " ")}`);
  for (const name of Object.keys(total)) if (!/memory|^node:|^accelerator_type:/.test(name)) page.tiles.add(name);
  const tiles = [...page.tiles].map((name) => {
    const amount = total[name] || 0, used = amount - (free[name] || 0);
    return tile(name, `${figure(used)} of ${figure(amount)}`, { share: amount ? used / amount : 0 });
  });
  tiles.push(tile("load", `${load.toFixed(2)} on ${cores}`, { share: load / cores }));
  tiles.push(tile("memory", bytes(held), { more: `of ${counted(living.length, "process", "processes")}` }));
  tiles.push(tile("objects", `${bytes(node.object_store_bytes)} of ${bytes(object_store_memory)}`, { share: node.object_store_bytes / object_store_memory }));
  tiles.push(tile("actors", `${(counts.ALIVE || 0).toLocaleString("en")} alive`, { more: others.join(", ") }));
  tiles.push(tile("workers", (living.length - living.filter((each) => each.worker_type === "DRIVER").length).toLocaleString("en"), { more: demands.length ? `${counted(demands.length, "demand")} wait` : "" }));
  tiles.push(tile("graphs", graphs.length));
  for (const gpu of node.gpus || []) tiles.push(tile(`GPU ${gpu.index}, ${figure(gpu.busy)} % busy`, `${bytes(gpu.used_bytes)} of ${bytes(gpu.total_bytes)}`, { share: gpu.used_bytes / gpu.total_bytes }));
  $("#tiles").innerHTML = tiles.join("");
}

function drawSessions() {
  const made = page.sessions.map((each) => `<option value="${escape(each.session_dir)}">${escape(each.programs.replaceAll(/: \S*python\S* /g, ": "))} (${escape(each.name)})</option>`).join("");
  if ($("#session").dataset.made !== made && document.activeElement !== $("#session")) {
    $("#session").innerHTML = made || "<option>no session</option>";
    $("#session").dataset.made = made;
  }
  $("#session").value = page.session;
}

function draw() {
  drawTiles();
  drawProcess();
  for (const button of document.querySelectorAll("#tabs button")) button.setAttribute("aria-selected", button.dataset.tab === page.tab);
  $("#tools").hidden = page.tab === "timeline" || page.tab === "graphs";
  const missing = page.now?.missing || [];
  const notes = [...(page.ended ? [`${nameOf(page.ended)} has ended; this is another session.`] : []), ...(missing.length ? [`Not every process has answered: ${folded(missing).join("; ")}`] : [])];
  $("#missing").hidden = !notes.length;
  $("#missing").textContent = notes.join(" ");
  if (!page.now) { $("#view").innerHTML = '<p class="dim">No session is running. This page shows the next one.</p>'; return; }
  if (page.tab === "timeline") return drawTimeline();
  if (page.tab === "logs") return drawLogs();
  if (window.getSelection()?.toString() && $("#view").contains(window.getSelection().anchorNode)) return undefined;  // keep the user's selection
  const made = TABS[page.tab](), at = $("#view .table")?.scrollLeft || 0, row = document.activeElement?.dataset.pid;
  if (made !== null) $("#view").innerHTML = made;
  if (at && $("#view .table")) $("#view .table").scrollLeft = at;
  if (row) $(`#view tr[data-pid="${row}"]`)?.focus({ preventScroll: true });
  if (page.tab === "graphs") paint();
  return undefined;
}

// ---------------------------------------------------------------------------------------------- graphs
function graphs() {
  const { graphs: all, channels } = page.now;
  if (!all.length) return '<p class="dim">none</p>';
  if (!all.some((each) => each.graph_id === page.graph)) page.graph = all[0].graph_id;
  const graph = all.find((each) => each.graph_id === page.graph);
  const choice = all.length > 1 ? `<select id="graph" aria-label="graph">${all.map((each) => `<option value="${each.graph_id}"${each === graph ? " selected" : ""}>${each.graph_id.slice(0, 8)} ${escape([...new Set(Object.values(each.actors))].join(", "))}</option>`).join("")}</select>` : "";
  const own = channels.filter((each) => each.graph_id === graph.graph_id);
  const columns = [
    text("source", (row) => row.source), text("writer", (row) => row.writer), text("readers", (row) => row.readers.join(", ")),
    text("transport", (row) => row.transport, "wide"), number("messages", (row) => row.written, (found) => found?.toLocaleString("en") ?? ""),
    number("/s", (row) => rate(row, "written", "channel_id", "channels")), number("full", (row) => row.waiting === null ? null : `${row.waiting}/${row.slots}`, String),
    number("waited at", (row) => share(row), (found) => `${Math.round(100 * found)} %`), text("by", (row) => row.awaited_by.join(", "), "wide"),
  ];
  const executions = rate(graph, "finished", "graph_id", "graphs");
  const waits = [...(graph.waits || "").split("; ").filter(Boolean), ...page.now.workers.flatMap((each) => (each.waits_for || []).map((what) => `${whose(each)} (pid ${each.pid}) for ${what}`))];
  return `<div class="graph"><div>${choice} <span class="state ${stateClass(graph.state)}">${graph.state}</span> ${figure(executions)} executions/s, ${graph.in_flight} of ${graph.max_in_flight} in flight, ${graph.finished.toLocaleString("en")} done${graph.computing.length ? `, ${escape([...new Set(graph.computing)].join(", "))} computes` : ""}</div>
    <div class="dim">An edge's colour is the share of recent samples in which a process waited at it: none <span class="ramp"></span> all; its width is messages per second.</div>
    <div class="picture">asks for the picture ...</div><h3>who waits for whom</h3>${waits.length ? `<ul class="waits">${waits.map((each) => `<li>${escape(each)}</li>`).join("")}</ul>` : '<p class="dim">none</p>'}<h3>edges</h3>${table("channels", columns, own, () => 0)}</div>`;
}

function share(channel) {
  const seen = page.looks.get(channel.channel_id) || [];
  return seen.length ? seen.reduce((sum, each) => sum + each, 0) / seen.length : null;
}

function colour(part) {
  const stops = [[138, 148, 158], [224, 160, 48], [198, 40, 40]], at = part * 2, first = Math.min(1, Math.floor(at)), rest = at - first;
  return `rgb(${stops[first].map((each, index) => Math.round(each + (stops[first + 1][index] - each) * rest)).join(" ")})`;
}

async function paint() {
  const id = page.graph;
  if (!page.pictures.has(id)) {
    page.pictures.set(id, "");
    try { page.pictures.set(id, await ask("picture", { graph: id })); } catch (error) { page.pictures.delete(id); say(error.message, true); }
    if (page.tab !== "graphs" || page.graph !== id) return;
  }
  const place = $(".picture"), picture = page.pictures.get(id);
  if (!place || !picture) return;
  place.innerHTML = picture;
  for (const edge of place.querySelectorAll("g.edge")) {
    const channel = page.now.channels.find((each) => each.channel_id === `${id}:${edge.dataset.channel}`);
    if (!channel) continue;
    const line = $("polyline", edge), part = share(channel), speed = rate(channel, "written", "channel_id", "channels");
    line.style.stroke = colour(part || 0);
    line.style.strokeWidth = 1.3 + Math.min(4, Math.log10(1 + (speed || 0)));
    const said = `${channel.written === null ? "?" : channel.written.toLocaleString("en")}×${speed ? ` ${figure(speed)}/s` : ""}${part ? `, waited ${Math.round(100 * part)} %` : ""}`;
    $("title", edge).textContent = `${channel.source} from ${channel.writer} to ${channel.readers.join(", ")}\n${said}\n${$("title", edge).textContent}`;
    const room = [...place.querySelectorAll(`g.label[data-source="${edge.dataset.source}"][data-target="${edge.dataset.target}"] text`)].pop();
    if (room && !room.textContent.trim()) room.textContent = said;
  }
}

// ---------------------------------------------------------------------------------------------- timeline, logs
function drawTimeline(again = false) {
  if ($("#view iframe") && !again) return undefined;
  const source = `timeline?${new URLSearchParams({ session: page.session, seconds: page.seconds, token: TOKEN })}`;
  $("#view").innerHTML = `<p>the last <select id="seconds" aria-label="seconds">${[2, 10, 60, 600].map((each) => `<option${each === page.seconds ? " selected" : ""}>${each}</option>`).join("")}</select> seconds <button type="button" id="reload">again</button></p><iframe title="timeline" src="${escape(source)}"></iframe>`;
  return undefined;
}

// Of a file, of a process (out and err), or of all files as one stream; the server filters, since it has more than is shown.
async function readLog() {
  page.files = await ask("logs");
  if (page.of.file && !page.files.some((each) => each.file === page.of.file)) page.of = {};
  page.printed = await ask("log", { ...page.of, wanted: $("#filter").value.trim() });
}

// Whose file it is: the process by its pid, or else the file's name.
function logName(file) {
  const [, pid, kind] = /-(\d+)\.(out|err)$/.exec(file) || [], row = page.now.workers.find((each) => String(each.pid) === pid);
  return pid ? `${(row && whose(row)) || "worker"} pid ${pid} ${kind}` : file;
}

function drawLogs() {
  const wanted = $("#filter").value.trim().toLowerCase(), old = $("#view .logs pre"), follows = !old || old.scrollHeight - old.scrollTop - old.clientHeight < 30, at = old?.scrollTop || 0;
  const of = (value, name, size, title = "") => `<button type="button" data-file="${escape(value)}" aria-selected="${value === (page.of.file || "") && !page.of.pid}" title="${escape(title)}">${escape(name)} <span class="dim">${bytes(size)}</span></button>`;
  if (!page.files) { $("#view").innerHTML = '<p class="dim">asks ...</p>'; return undefined; }
  const { files } = page, buttons = [of("", "all files", files.reduce((sum, each) => sum + each.bytes, 0)), ...files.map((each) => of(each.file, logName(each.file), each.bytes, each.file))];
  const lines = page.printed.lines.filter(([, , text]) => text.toLowerCase().includes(wanted));
  const found = counted(lines.length, "line"), { cut, read } = page.printed;
  $("#count").textContent = !wanted ? (cut ? `the last ${found}; mray logs has all` : "") : cut ? `${found} in the last ${bytes(read)}; mray logs --grep searches all` : found;
  $("#view").innerHTML = files.length ? `<div class="logs"><div class="files">${buttons.join("")}</div><pre></pre></div>` : '<p class="dim">Nothing has been printed yet.</p>';
  const place = $("#view .logs pre");
  if (!place) return undefined;
  const said = lines.map(([time, who, text]) => (page.of.file ? text : `${time ? `${clock(time)} ` : ""}(${who}) ${text}`)).join("\n");
  place.textContent = said || (page.of.pid && !wanted ? `The process with pid ${page.of.pid} has printed nothing to a log.` : "");
  place.scrollTop = follows ? place.scrollHeight : at;
  return undefined;
}

function clock(time) {
  const at = new Date(time * 1000);
  return `${at.toTimeString().slice(0, 8)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// ---------------------------------------------------------------------------------------------- a process
// The panel: facts of each look, and the stack that was asked for.
function drawProcess() {
  if (page.pid === null) return;
  const row = page.now?.workers.find((each) => each.pid === page.pid && each.is_alive);
  page.process = row || page.process;
  const known = page.process;
  const facts = known ? [["id", known.worker_id], ["actor", known.actor_id], ["runs", known.current_task], ["waits for", [...(known.waits_for || []), ...(known.waits_in_graphs || [])].join("; ")], ["memory", bytes(memory(known))], ["RSS", bytes(known.rss_bytes)], ["CPU time", `${figure(known.cpu_seconds)} s`], ["GPUs", (known.gpu_ids || []).join(", ")], ["calls done", known.num_finished]] : [];
  $("#detail h2").textContent = `${(known && whose(known)) || "worker"} (pid ${page.pid})${row ? "" : " has ended"}`;
  $("#detail").classList.toggle("ended", !row);
  $("#detail dl").innerHTML = facts.filter(([, value]) => value !== null && value !== "" && value !== undefined).map(([name, value]) => `<dt>${escape(name)}</dt><dd>${escape(value)}</dd>`).join("");
}

async function showProcess(pid) {
  if (pid !== page.pid) page.process = null;
  page.pid = pid;
  $("#detail").hidden = false;
  drawProcess();
  $("#detail pre").textContent = "asks for its stack ...";
  try {
    const found = await ask("stack", { pid });
    const said = found.stacks.map(([thread, stack]) => `${thread ? `--- ${thread}\n` : ""}${stack.trimEnd()}`).join("\n\n");
    if (page.pid === pid) $("#detail pre").textContent = said || found.error || found.through;
  } catch (error) {
    if (page.pid === pid) $("#detail pre").textContent = error.message;
  }
}

function hideProcess() {
  $("#detail").hidden = true;
  Object.assign(page, { pid: null, process: null });
}

// ---------------------------------------------------------------------------------------------- what the user does
function go(tab) {
  page.tab = tab;
  $("#view").innerHTML = "";
  if (page.now) draw();
  if (tab === "tasks" || tab === "logs") round();
}

document.addEventListener("click", async (event) => {
  const { target } = event, row = target.closest("tr[data-pid]");
  if (target.dataset.tab) go(target.dataset.tab);
  else if (target.dataset.by) {
    const [by, up] = page.sort[target.dataset.kind] || [];
    page.sort[target.dataset.kind] = [target.dataset.by, by === target.dataset.by ? !up : !target.classList.contains("number")];
    draw();
  } else if (row) await showProcess(Number(row.dataset.pid));
  else if (target.id === "close") { hideProcess(); draw(); }
  else if (target.id === "again") await showProcess(page.pid);
  else if (target.id === "printed") { page.of = { pid: page.pid }; await readLog(); $("#detail").hidden = true; go("logs"); }
  else if (target.id === "largest") { target.disabled = true; try { page.objects = await ask("objects"); draw(); } catch (error) { say(error.message, true); } }
  else if (target.id === "reload") drawTimeline(true);
  else if (target.closest("[data-file]")) { const { file } = target.closest("[data-file]").dataset; page.of = file ? { file } : {}; await round(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideProcess();
  if (event.key === "Enter" && event.target.matches?.("tr[data-pid]")) showProcess(Number(event.target.dataset.pid));
});
document.addEventListener("change", (event) => {
  if (event.target.id === "session") { choose(event.target.value); round(); }
  if (event.target.id === "graph") { page.graph = event.target.value; draw(); }
  if (event.target.id === "seconds") { page.seconds = Number(event.target.value); drawTimeline(true); }
});
$("#filter").addEventListener("input", () => page.now && draw());
$("#tabs").innerHTML = Object.keys(TABS).map((tab) => `<button type="button" role="tab" data-tab="${tab}">${tab}</button>`).join("");
forever();
