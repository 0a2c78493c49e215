"use strict";
// The timeline page: draws data that timeline_html.py packed. Times are ns from the first step's start.
// Within a row no two entries overlap, so starts and ends both ascend: what a pixel shows is found by binary search, and a frame takes
// as long with a million entries as with a thousand. Names are text from outside: they are only ever drawn or set as textContent.
(async () => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const NAMES = 216, AXIS = 22, HEAD = 20, ROW = 16, SPACE = 5;

  // ---- data ----------------------------------------------------------------------------------------------------------------
  const unpack = async (text) => {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };
  const size = data.entries, raw = await unpack(data.packed), col = {};
  data.columns.forEach((name, i) => { col[name] = new Int32Array(raw, 4 * i * size, size); });
  delete data.packed;
  const wide = (name, i) => col[name + "_high"][i] * 4294967296 + (col[name][i] >>> 0);
  const start = new Float64Array(size), end = new Float64Array(size), covered = new Float64Array(size + 1);
  const lanes = [], laneOf = new Int16Array(size);
  let at = 0;
  for (const given of data.lanes) {
    const lane = { ...given, rows: [], open: true, number: lanes.length };
    for (const count of given.rows) {
      lane.rows.push({ from: at, to: at + count });
      for (let time = data.base, last = at + count; at < last; at++) {
        time += wide("start", at);
        start[at] = time;
        end[at] = time + wide("length", at);
        covered[at + 1] = covered[at] + (col.count[at] > 1 ? wide("busy", at) : end[at] - start[at]);
        laneOf[at] = lane.number;
      }
    }
    lanes.push(lane);
  }
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < size; i++) { if (start[i] < low) low = start[i]; if (end[i] > high) high = end[i]; }
  if (!size) { low = 0; high = 1; }
  if (high <= low) high = low + 1;
  const name = (i) => data.names[i] ?? "";
  const kindOf = (i) => (col.kind[i] < 0 ? null : data.kinds[col.kind[i]]);  // [category, name, operator, events, ns]
  let launchedBy = null;  // entry of a call -> entries of what it launched
  const launchedOf = (call) => {
    if (!launchedBy) {
      launchedBy = new Map();
      for (let i = 0; i < size; i++) {
        const by = col.launch[i] - 1;
        if (by >= 0) launchedBy.has(by) ? launchedBy.get(by).push(i) : launchedBy.set(by, [i]);
      }
    }
    return launchedBy.get(call) ?? [];
  };

  // first index in [from, to) with column[index] > value
  const after = (column, value, from, to) => {
    while (from < to) { const middle = (from + to) >> 1; if (column[middle] > value) to = middle; else from = middle + 1; }
    return from;
  };

  // ---- words and colours -----------------------------------------------------------------------------------------------------
  const time = (ns) => {
    const size = Math.abs(ns);
    if (size < 1e3) return `${ns} ns`;
    if (size < 1e7) return `${(ns / 1e3).toFixed(3)} µs`;
    return size < 1e10 ? `${(ns / 1e6).toFixed(3)} ms` : `${(ns / 1e9).toFixed(3)} s`;
  };
  const number = (n) => n.toLocaleString("en");
  const short = (text) => {
    const plain = text.replace(/^void /, "").replaceAll(/\(anonymous namespace\)::|<unnamed>::/g, "");
    const head = plain.slice(0, (plain.search(/[<(]/) + 1 || plain.length + 1) - 1);
    return head.slice(head.lastIndexOf("::") + 1).replace(/^:/, "") || plain;
  };
  const HUES = ["#4e9a51", "#3b8ec2", "#7fb24a", "#2fa39a", "#5b7fd1", "#8fa83a", "#49a878", "#3fa0b5", "#6f95dd", "#63b06b"];
  const FIXED = { memcpy: "#e08a2e", memset: "#b5a48a", communication: "#b765c9", runtime: "#8ea3b8", step: "#9aa3ad", range: "#b9a7dd",
    stage: "#a48be0", module: "#cbbfe6", overhead: "#a8785a" };
  const CAUSES = { "host bound": "#d6453d", synchronization: "#e5732d", "data loader": "#b0418f", copy: "#e0a52e", allocator: "#8c5a2b",
    "first use": "#7a6ad8", dependency: "#3c7fb8", "launch latency": "#d98a8a", profiler: "#8a8a8a", outside: "#b8bcc2", unknown: "#6f7680" };
  const colours = data.kinds.map(([category, text]) => {
    if (category === "gap") return CAUSES[name(text)] ?? CAUSES.unknown;
    if (FIXED[category]) return FIXED[category];
    let hash = 7;
    for (const letter of name(text)) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    return HUES[hash % HUES.length];
  });
  const colour = (i) => (col.kind[i] < 0 ? "#9aa3ad" : colours[col.kind[i]]);
  const theme = {};
  const readTheme = () => {
    const css = getComputedStyle(document.documentElement);
    for (const key of ["ground", "ink", "faint", "quiet", "band", "mark"]) theme[key] = css.getPropertyValue("--" + key).trim();
  };

  // ---- state -----------------------------------------------------------------------------------------------------------------
  const canvas = byId("lanes"), scroll = byId("scroll"), overview = byId("overview"), tip = byId("tip");
  const paint = canvas.getContext("2d"), map = overview.getContext("2d");
  const view = { from: low, to: high };
  const found = { kinds: null, before: null };  // filter: Uint8Array by kind; Int32Array of matches before an entry
  let width = 0, height = 0, letter = 7, selected = -1, stretch = null, queued = false, total = 0;
  const layout = [];  // {y, lane, row | null (a group's head)}

  const place = () => {
    layout.length = 0;
    let y = AXIS, group = null;
    for (const lane of lanes) {
      if (lane.group !== group) { group = lane.group; layout.push({ y, head: group }); y += HEAD; }
      lane.y = y;
      const rows = lane.open ? lane.rows : lane.rows.slice(0, 1);
      rows.forEach((row) => { layout.push({ y, lane, row }); y += ROW; });
      lane.bottom = y;
      y += SPACE;
    }
    total = y;
    byId("height").style.height = `${Math.max(0, total - height)}px`;
  };
  const fit = (target, wide_, high_) => {
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(wide_ * ratio);
    target.height = Math.round(high_ * ratio);
    target.style.width = `${wide_}px`;
    target.style.height = `${high_}px`;
    target.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  };
  const resize = () => {
    width = scroll.clientWidth;
    height = scroll.clientHeight;
    fit(canvas, width, height);
    fit(overview, width, 40);
    paint.font = "11px ui-monospace, Menlo, Consolas, \"DejaVu Sans Mono\", monospace";
    paint.textBaseline = "middle";
    letter = paint.measureText("0123456789_abcdefghijklmnopqrstuvwxyz:<>").width / 40;
    place();
    draw();
  };
  const draw = () => { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; drawAll(); }); } };
  const scale = () => (width - NAMES) / (view.to - view.from);
  const toX = (t) => NAMES + (t - view.from) * scale();
  const toTime = (x) => view.from + (x - NAMES) / scale();
  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, 20), (high - low) * 1.1), edge = (high - low) * 0.05;
    const left = Math.min(Math.max(from + (to - from - span) / 2, low - edge), high + edge - span);
    view.from = left;
    view.to = left + span;
    tip.hidden = true;
    draw();
  };
  const zoom = (factor, centre = (view.from + view.to) / 2) =>
    show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  const pan = (part) => show(view.from + (view.to - view.from) * part, view.to + (view.to - view.from) * part);

  // ---- drawing ---------------------------------------------------------------------------------------------------------------
  const matches = (from, to) => !found.before || found.before[to] > found.before[from];
  const rect = (context, x, y, w, h, fill, alpha) => { context.globalAlpha = alpha; context.fillStyle = fill; context.fillRect(x, y, w, h); };

  // One row. Entries narrower than 1.5 px share the pixel that they begin in; its strength says how much of its time they cover.
  const drawRow = (row, y) => {
    const perPixel = 1 / scale();
    let run = null;  // pixels of one look side by side are one rectangle
    const flush = () => { if (run) rect(paint, run.x, y, run.to - run.x, ROW - 2, run.fill, run.alpha); run = null; };
    for (let i = after(end, view.from, row.from, row.to); i < row.to && start[i] < view.to;) {
      const x = toX(start[i]), x1 = toX(end[i]);
      if (x1 - x >= 1.5) { flush(); drawEntry(i, Math.max(x, NAMES), Math.min(x1, width), y); i++; continue; }
      const pixel = Math.max(NAMES, Math.floor(x)), until = view.from + (pixel + 1 - NAMES) * perPixel;
      let next = Math.max(i + 1, after(start, until, i, row.to));
      if (next > i + 1 && toX(end[next - 1]) - toX(start[next - 1]) >= 1.5) next--;
      const share = Math.min(1, (covered[next] - covered[i]) / perPixel);
      const hit = matches(i, next), shown = hit && found.before ? after(found.before, found.before[i], i + 1, next + 1) - 1 : i;
      const alpha = (0.2 + 0.8 * Math.ceil(share * 6) / 6) * (hit ? 1 : 0.12), fill = colour(shown);
      if (run && run.to === pixel && run.fill === fill && run.alpha === alpha) run.to = pixel + 1;
      else { flush(); run = { x: pixel, to: pixel + 1, fill, alpha }; }
      i = next;
    }
    flush();
  };
  const drawEntry = (i, x, x1, y) => {
    const block = col.count[i] > 1, dim = matches(i, i + 1) ? 1 : 0.12, gap = x1 - x > 4 ? 1 : 0;
    const share = block ? (covered[i + 1] - covered[i]) / Math.max(1, end[i] - start[i]) : 1;
    rect(paint, x, y, x1 - x - gap, ROW - 2, colour(i), dim * (block ? 0.2 + 0.6 * share : 1));
    if (block && x1 - x > 6) {
      paint.globalAlpha = 0.35 * dim;
      paint.strokeStyle = theme.ink;
      paint.beginPath();
      for (let h = x + 3; h < x1 - 3; h += 6) { paint.moveTo(h, y + ROW - 2); paint.lineTo(Math.min(h + 5, x1), y); }
      paint.stroke();
    }
    if (i === selected) { paint.globalAlpha = 1; paint.lineWidth = 2; paint.strokeStyle = theme.mark; paint.strokeRect(x, y, x1 - x - gap, ROW - 2); paint.lineWidth = 1; }
    const room = Math.floor((x1 - x - 6) / letter);
    if (room < 3) return;
    const kind = kindOf(i), device = lanes[laneOf[i]].kind === "device";
    let text = kind ? (device ? short(name(kind[1])) : name(kind[1])) : "events";
    if (block) text = `${number(col.count[i])} × ${text}`;
    paint.globalAlpha = Math.max(dim, 0.3);
    paint.fillStyle = block ? theme.ink : "#0d1117";
    paint.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x + 3, y + ROW / 2);
  };
  const ticks = () => {
    const rough = (view.to - view.from) * 130 / (width - NAMES), base = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * base).find((one) => one >= rough) ?? rough, places = [];
    for (let t = Math.ceil(view.from / step) * step; t < view.to; t += step) places.push(t + 0);
    const [unit, per] = step < 1e3 ? ["ns", 1] : step < 1e6 ? ["µs", 1e3] : step < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return places.map((t) => [t, `${number(Math.round(t / per) + 0)} ${unit}`]);
  };
  const drawAxis = () => {
    rect(paint, 0, 0, width, AXIS, theme.ground, 1);
    paint.globalAlpha = 1;
    paint.fillStyle = theme.quiet;
    for (const [t, words] of ticks()) {
      if (toX(t) < NAMES) continue;
      paint.fillRect(toX(t), AXIS - 5, 1, 5);
      paint.fillText(words, toX(t) + 4, AXIS / 2);
    }
    paint.fillText(`${time(Math.round(view.to - view.from))} in view`, 8, AXIS / 2);
  };
  const drawNames = (shift) => {
    rect(paint, 0, AXIS, NAMES, height, theme.ground, 1);
    paint.globalAlpha = 1;
    for (const one of layout) {
      if (one.head === undefined) continue;
      rect(paint, 0, one.y - shift, width, HEAD - 2, theme.band, 1);
      paint.fillStyle = theme.ink;
      paint.fillText(one.head, 8, one.y - shift + HEAD / 2 - 1);
    }
    for (const lane of lanes) {
      if (lane.bottom - shift < AXIS || lane.y - shift > height) continue;
      const text = `${lane.open ? (lane.rows.length > 1 ? "▾ " : "") : "▸ "}${lane.label}`, room = Math.floor((NAMES - 16) / letter);
      paint.fillStyle = theme.quiet;
      paint.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, 8, lane.y - shift + ROW / 2);
    }
  };
  const drawLink = (shift) => {
    if (selected < 0) return;
    const call = col.launch[selected] - 1, pairs = call >= 0 ? [[call, selected]] : launchedOf(selected).slice(0, 200).map((one) => [selected, one]);
    paint.globalAlpha = 0.9;
    paint.strokeStyle = theme.mark;
    for (const [from, to] of pairs) {
      const y0 = rowY(from), y1 = rowY(to);
      if (y0 === null || y1 === null) continue;
      paint.beginPath();
      paint.moveTo(toX(start[from]), y0 - shift + ROW / 2);
      paint.lineTo(toX(start[to]), y1 - shift + ROW / 2);
      paint.stroke();
    }
  };
  const rowY = (i) => layout.find((one) => one.row && i >= one.row.from && i < one.row.to)?.y ?? null;
  const drawAll = () => {
    const shift = scroll.scrollTop;
    rect(paint, 0, 0, width, height, theme.ground, 1);
    for (const [from, to] of data.steps)
      if (to > view.from && from < view.to) rect(paint, toX(from), AXIS, toX(to) - toX(from), height, theme.band, 1);
    for (const one of layout) if (one.row && one.y - shift + ROW > AXIS && one.y - shift < height) drawRow(one.row, one.y - shift);
    drawLink(shift);
    drawNames(shift);
    drawAxis();
    if (stretch) rect(paint, Math.min(...stretch), AXIS, Math.abs(stretch[1] - stretch[0]), height, theme.mark, 0.2);
    drawOverview();
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
  };
  let busy = null;  // share of each pixel of the overview in which each device lane ran something, the largest over lanes
  const drawOverview = () => {
    if (!busy || busy.length !== Math.floor(width)) {
      busy = new Float64Array(Math.floor(width));
      const shown = lanes.filter((lane) => lane.kind === "device"), step = (high - low) / busy.length;
      for (const lane of shown.length ? shown : lanes.filter((one) => one.kind === "operators"))
        for (const row of lane.rows) {
          for (let p = 0; p < busy.length; p++) {
            const from = low + p * step, to = from + step;
            let first = after(end, from, row.from, row.to);
            const last = after(start, to, first, row.to);
            let sum = covered[last] - covered[first];
            if (first < last) {  // what lies outside of the pixel
              const part = (i) => (covered[i + 1] - covered[i]) / Math.max(1, end[i] - start[i]);
              sum -= Math.max(0, from - start[first]) * part(first) + Math.max(0, end[last - 1] - to) * part(last - 1);
            }
            busy[p] = Math.max(busy[p], Math.min(1, sum / step));
          }
        }
    }
    rect(map, 0, 0, width, 40, theme.ground, 1);
    for (let p = 0; p < busy.length; p++) if (busy[p] > 0) rect(map, p, 38 - 34 * busy[p], 1, 34 * busy[p], "#4e9a51", 0.85);
    const x = (t) => (t - low) / (high - low) * width;
    rect(map, 0, 0, Math.max(0, x(view.from)), 40, theme.quiet, 0.35);
    rect(map, x(view.to), 0, width, 40, theme.quiet, 0.35);
    rect(map, Math.max(0, x(view.from)), 0, Math.max(3, Math.min(width, x(view.to)) - Math.max(0, x(view.from))), 3, theme.mark, 1);
  };

  // ---- what is under the pointer ---------------------------------------------------------------------------------------------
  const hit = (x, y) => {
    if (x < NAMES || y < AXIS) return -1;
    const one = layout.find((row) => row.row && y + scroll.scrollTop >= row.y && y + scroll.scrollTop < row.y + ROW);
    if (!one) return -1;
    const t = toTime(x), near = 3 / scale(), i = after(end, t - near, one.row.from, one.row.to);
    let best = -1, least = Infinity;
    for (let k = i; k < one.row.to && k < i + 64 && start[k] <= t + near; k++) {
      const far = Math.max(start[k] - t, t - end[k], 0);
      if (far < least) { least = far; best = k; }
    }
    return best;
  };
  const facts = (i) => {
    const kind = kindOf(i), lane = lanes[laneOf[i]], block = col.count[i] > 1, rows = [];
    const length = end[i] - start[i], title = kind ? name(kind[1]) : "events of several kinds";
    if (block) {
      rows.push(["merged", `${number(col.count[i])} short events of this page's coarser level of detail`]);
      rows.push(["their summed time", time(covered[i + 1] - covered[i])]);
    }
    if (kind && kind[2] >= 0) rows.push(["operator", name(kind[2])]);
    rows.push(["duration", time(length)], ["start", time(start[i])], ["lane", lane.label]);
    if (kind && lane.kind === "device") rows.push(["category", kind[0]]);
    const call = col.launch[i] - 1;
    if (call >= 0) rows.push(["launched by", name(kindOf(call)[1])], ["call to start", time(start[i] - start[call])]);
    if (lane.kind === "runtime" && !block) for (const one of launchedOf(i).slice(0, 3)) rows.push(["launches", name(kindOf(one)?.[1])]);
    for (const [label, words] of data.details[col.detail[i]]) rows.push([label, words]);
    if (kind && kind[3] > 1) rows.push(["all of this kind", `${number(kind[3])}, ${time(kind[4])}`]);
    return [title, rows];
  };
  const describe = (target, i) => {
    const [title, rows] = facts(i), head = document.createElement("h2"), list = document.createElement("dl");
    head.textContent = title;
    for (const [label, words] of rows) {
      list.append(document.createElement("dt"), document.createElement("dd"));
      list.lastChild.previousSibling.textContent = label;
      list.lastChild.textContent = words;
    }
    target.replaceChildren(head, list);
  };
  const hover = (event) => {
    const i = hit(event.offsetX, event.offsetY);
    tip.hidden = i < 0;
    if (i < 0) return;
    describe(tip, i);
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? Math.max(4, event.clientY - tip.offsetHeight - 10) : event.clientY + 18}px`;
  };
  const select = (i, move = false) => {
    selected = i;
    const panel = byId("selected"), was = panel.hidden;
    panel.hidden = i < 0;
    if (i >= 0) describe(panel, i);
    if (move && i >= 0) {
      const span = view.to - view.from, centre = (start[i] + end[i]) / 2, y = rowY(i);
      if (start[i] < view.from || end[i] > view.to) show(centre - span / 2, centre + span / 2);
      if (y !== null && (y < scroll.scrollTop + AXIS || y > scroll.scrollTop + height - ROW)) scroll.scrollTop = y - height / 2;
    }
    if (was !== panel.hidden) resize();
    draw();
  };

  // ---- filter ----------------------------------------------------------------------------------------------------------------
  const filter = (text) => {
    found.kinds = found.before = null;
    byId("matches").textContent = "";
    if (text) {
      let test;
      try { const pattern = new RegExp(text, "i"); test = (one) => pattern.test(one); }
      catch { const plain = text.toLowerCase(); test = (one) => one.toLowerCase().includes(plain); }
      const names = data.names.map(test), sums = { device: [0, 0], host: [0, 0] };
      let all = 0;
      found.kinds = Uint8Array.from(data.kinds, ([category, own, owner, events, ns]) => {
        const device = ["kernel", "memcpy", "memset", "communication"].includes(category), yes = names[own] || (owner >= 0 && names[owner]);
        if (device) all += ns;
        if (yes) { const sum = sums[device ? "device" : "host"]; sum[0] += events; sum[1] += ns; }
        return yes;
      });
      found.before = new Int32Array(size + 1);
      for (let i = 0; i < size; i++) found.before[i + 1] = found.before[i] + (col.kind[i] >= 0 ? found.kinds[col.kind[i]] : 0);
      const share = all ? ` (${(100 * sums.device[1] / all).toFixed(1)}% of device time)` : "";
      byId("matches").textContent = `${number(sums.device[0])} on the device, ${time(sums.device[1])}${share}; ${number(sums.host[0])} on the host`;
    }
    draw();
  };
  const next = (back) => {
    if (!found.before || !found.before[size]) return;
    const from = selected >= 0 ? start[selected] : back ? Infinity : -Infinity;
    const better = (i, best) => best < 0 || (back ? start[i] > start[best] : start[i] < start[best]);
    const search = (device) => {
      let best = -1, first = -1;  // first: where to go on after the last
      for (let i = 0; i < size; i++) {
        if (!matches(i, i + 1) || (lanes[laneOf[i]].kind === "device") !== device) continue;
        if (better(i, first)) first = i;
        if ((back ? start[i] < from : start[i] > from) && better(i, best)) best = i;
      }
      return best >= 0 ? best : first;
    };
    const device = search(true);
    select(device >= 0 ? device : search(false), true);
  };

  // ---- input -----------------------------------------------------------------------------------------------------------------
  canvas.addEventListener("wheel", (event) => {
    if (event.offsetX < NAMES) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1000);
    else zoom(1.0015 ** Math.max(-400, Math.min(400, event.deltaY)), toTime(event.offsetX));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.clientY, from: view.from, to: view.to, top: scroll.scrollTop, moved: false, zoom: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
    scroll.focus({ preventScroll: true });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) { hover(event); return; }
    const far = event.offsetX - drag.x;
    drag.moved ||= Math.abs(far) > 3 || Math.abs(event.clientY - drag.y) > 3;
    if (!drag.moved || drag.x < NAMES) return;
    if (drag.zoom) { stretch = [drag.x, Math.max(NAMES, event.offsetX)]; draw(); return; }
    const shift = far * (drag.to - drag.from) / (width - NAMES);
    show(drag.from - shift, drag.to - shift);
    scroll.scrollTop = drag.top - (event.clientY - drag.y);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (stretch && Math.abs(stretch[1] - stretch[0]) > 3) show(toTime(Math.min(...stretch)), toTime(Math.max(...stretch)));
    else if (drag && !drag.moved) {
      const y = event.offsetY + scroll.scrollTop, lane = lanes.find((one) => y >= one.y && y < one.bottom);
      if (event.offsetX < NAMES && lane) { lane.open = !lane.open; place(); draw(); }
      else select(hit(event.offsetX, event.offsetY));
    }
    drag = stretch = null;
    draw();
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointercancel", () => { drag = stretch = null; draw(); });
  const moveTo = (event) => {
    const centre = low + event.offsetX / width * (high - low), span = view.to - view.from;
    show(centre - span / 2, centre + span / 2);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); moveTo(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) moveTo(event); });
  scroll.addEventListener("scroll", () => { tip.hidden = true; draw(); });
  const toStep = (i) => {
    const step = data.steps[Math.max(0, Math.min(i, data.steps.length - 1))];
    if (step) { const edge = (step[1] - step[0]) * 0.02; show(step[0] - edge, step[1] + edge); }
    byId("steps").value = step ? String(data.steps.indexOf(step)) : "";
  };
  const here = () => data.steps.findIndex((step) => step[1] > (view.from + view.to) / 2);
  const KEYS = {
    w: () => zoom(0.7), "+": () => zoom(0.7), "=": () => zoom(0.7), s: () => zoom(1 / 0.7), "-": () => zoom(1 / 0.7),
    a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
    ArrowUp: () => { scroll.scrollTop -= 3 * ROW; }, ArrowDown: () => { scroll.scrollTop += 3 * ROW; },
    0: () => show(low, high), f: () => show(low, high), "]": () => toStep(here() + 1), "[": () => toStep(here() - 1),
    n: () => next(false), N: () => next(true), "/": () => byId("filter").focus(),
    z: () => { if (selected >= 0) { const edge = (end[selected] - start[selected]) / 4; show(start[selected] - edge, end[selected] + edge); } },
    Escape: () => { tip.hidden = true; select(-1); },
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === byId("filter")) {
      if (event.key === "Enter") next(event.shiftKey);
      else if (event.key === "Escape") { byId("filter").value = ""; filter(""); scroll.focus(); }
      return;
    }
    if (event.target === byId("steps") || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  let pause = 0;
  byId("filter").addEventListener("input", (event) => { clearTimeout(pause); pause = setTimeout(() => filter(event.target.value), 80); });
  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("fit").addEventListener("click", () => show(low, high));
  byId("steps").addEventListener("change", (event) => { if (event.target.value !== "") toStep(Number(event.target.value)); });
  addEventListener("resize", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); draw(); });

  // ---- the page around the lanes ---------------------------------------------------------------------------------------------
  const option = (words, value) => { const one = document.createElement("option"); one.textContent = words; one.value = value; return one; };
  byId("steps").append(option("all", ""), ...data.steps.map((_, i) => option(String(i), String(i))));
  byId("notes").append(...data.notes.map((words) => { const one = document.createElement("li"); one.textContent = words; return one; }));
  const shown = new Map();
  data.kinds.forEach(([category, text], i) => {
    const words = category === "gap" ? `idle: ${name(text)}` : category in FIXED ? category : category === "kernel" ? "kernel (by name)" : "";
    if (words && !shown.has(words)) shown.set(words, colours[i]);
  });
  byId("legend").append(...[...shown].map(([words, fill]) => {
    const one = document.createElement("span"), mark = document.createElement("i");
    mark.style.background = fill;
    one.append(mark, words);
    return one;
  }));
  readTheme();
  resize();
  drawAll();
  document.documentElement.dataset.ready = performance.now().toFixed(0);  // ms from the page's start to its first picture
  // For scripts that look at the page: where an entry stands in the window (the first of a name that is drawn by itself), and the view.
  window.timeline = {
    view: () => [view.from, view.to], entries: size, lanes: lanes.map((lane) => lane.label), matches: () => found.before?.[size] ?? null,
    where: (wanted, kind = "device", skip = 0) => {
      const box = canvas.getBoundingClientRect();
      for (let i = 0, left = skip; i < size; i++) {
        if (lanes[laneOf[i]].kind !== kind || col.count[i] > 1 || name(kindOf(i)[1]) !== wanted || left-- > 0) continue;
        const y = rowY(i);
        return y === null ? null : { x: box.x + toX((start[i] + end[i]) / 2), y: box.y + y - scroll.scrollTop + ROW / 2, start: start[i], end: end[i] };
      }
      return null;
    },
  };
})();
