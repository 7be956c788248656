// The page of gradlab: one file, no build step, no dependency, no network.
//
// It lives twice. `mountStatic` puts it into plain HTML (a report at the end of a cell,
// an exported page); `render`, the default export, is what anywidget calls when there
// is a kernel. Both hand a `host` to the same views:
//
//   host.live            whether Python listens
//   host.get(key)        a piece of state         host.set(key, value)   change it
//   host.on(key, f)      called when Python changed it; returns a function that stops
//   host.load(block, f)  f(planes) once the numbers of a block are there
//   host.ask(message, f) a question to Python; f(answer, buffers). Only if live.
//
// Two rules hold everywhere. Every name that a user chose reaches the page through a
// text node or an attribute, never as HTML. Every element that can take the focus
// carries data-lm-suppress-shortcuts: without it, typing "d d" deletes the cell.

// ------------------------------------------------------------------ elements, words

const SVG = "http://www.w3.org/2000/svg";
const FOCUS = { "data-lm-suppress-shortcuts": "true", tabindex: "0" };

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}
const h = (tag, attributes = {}, ...children) =>
  build(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const count = (n) => n.toLocaleString("en-US");
const number = (x) => (typeof x === "string" ? Number(x) : x);
const superscript = (n) =>
  String(n).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
const MINUS = "\u2212";

function format(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : MINUS + "inf";
  if (x === 0) return "0";
  const size = Math.abs(x);
  let text = size >= 1e-3 && size < 1e6 ? x.toPrecision(digits) : x.toExponential(digits - 1);
  if (text.includes("e") && size >= 1 && size < 1e4) text = String(Number(text)); // 490, not 4.9e02
  if (text.includes(".") && !text.includes("e")) text = text.replace(/\.?0+$/, "");
  text = text.replace(/\.?0+e/, "e").replace("e+", "e").replace(/e(-?)(\d)$/, "e$10$2");
  return text.replaceAll("-", MINUS);
}

// One digit, in as few characters as a cell has room for: 0.4 and 0.03, but 8e−3.
const rough = (x) => {
  const [plain, power] = [x.toPrecision(1), x.toExponential(0).replace("+", "")];
  return (plain.length > power.length ? power : plain).replaceAll("-", MINUS);
};

const WORDS = ["agrees", "undecided", "disagrees"];
const GLYPHS = ["✓", "!", "✗"];
const CLASSES = ["ok", "warn", "bad"];

function unravel(flat, shape) {
  const index = [];
  for (let d = shape.length - 1; d >= 0; d--) {
    index.unshift(flat % shape[d]);
    flat = Math.floor(flat / shape[d]);
  }
  return index;
}
// A name that is written from right to left would take the index that follows with it.
const isolated = (name) => (/[\u0590-\u08ff]/.test(name) ? `\u2068${name}\u2069` : name);
function entryName(variable, entry, support) {
  if (support) entry = support[entry];
  const name = isolated(variable.name);
  return variable.shape.length ? `${name}[${unravel(entry, variable.shape).join(", ")}]` : name;
}
const shapeWords = (shape) => (shape.length ? shape.join(" × ") : "scalar");

// Words with `code` between backticks, as in a docstring. Outside of it 4.5e-01 gets the
// minus that all numbers of the page have, since a line may break at a hyphen, and so has
// "analytic - numeric"; and "2 x numeric" its sign, since x is also what an input is called.
const withCode = (words) =>
  words.split("`").map((piece, i) => (i % 2 ? h("code", {}, piece)
    : prose(piece.replace(/(\de|[ =(])-(?=[\d.])/g, `$1${MINUS}`).replaceAll(" - ", ` ${MINUS} `).replace(/([\d)]) x (?=numeric)/g, "$1 × "))));

// Long names break at their dots; what all names of a list begin with is said once, for
// the ear, and left out for the eye.
const breakable = (name) => name.split(/(?<=[._/])/).flatMap((piece, i) => (i ? [h("wbr"), piece] : [piece]));
// The name of an entry, whose index, [3, 0], stays in one line.
const entryWords = (name) => name.split(/(\[[\d, ]+\])/).flatMap((piece, i) => (i % 2 ? [h("span", { class: "nowrap" }, piece)] : breakable(piece)));
const prose = (text) => text.split(/(\S{25,})/).map((piece, i) => (i % 2 ? breakable(piece) : piece));
function named(name, { prefix = "", indent = 0 } = {}) {
  const rest = name.slice(prefix.length);
  return h("span", { class: "name", title: name, style: indent ? `padding-left:${indent}px` : null },
    prefix && [h("span", { class: "hide" }, prefix), h("span", { class: "mute", "aria-hidden": "true" }, "…")], breakable(rest));
}
function commonPrefix(names, long = 26) {
  if (names.length < 2 || Math.max(...names.map((name) => name.length)) <= long) return "";
  const first = names.reduce((a, b) => (a < b ? a : b)), last = names.reduce((a, b) => (a > b ? a : b));
  let k = 0;
  while (k < first.length && first[k] === last[k]) k++;
  return first.slice(0, first.lastIndexOf(".", k - 1) + 1);
}

function verdictMark(verdict, words = WORDS[verdict]) {
  return h("span", { class: `mark ${CLASSES[verdict]}` },
    h("i", { "aria-hidden": "true" }, GLYPHS[verdict]), words);
}

// ------------------------------------------------------------------------- the theme

// Ask the page, not the operating system: go up to the first opaque background.
function ground(element) {
  for (let node = element; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor, parts = colour.match(/[\d.]+/g);
    if (parts && (parts.length < 4 || +parts[3] > 0.5)) {
      return { colour, dark: 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] < 128 };
    }
  }
  return { colour: "", dark: matchMedia("(prefers-color-scheme: dark)").matches };
}
function onTheme(element, call) {
  let was = null;
  const check = () => {
    const { colour, dark } = ground(element);
    element.style.setProperty("--ground", colour || "var(--paper)"); // what words stand on
    if (dark !== was) call((was = dark));
  };
  check();
  const observer = new MutationObserver(() => { check(); setTimeout(check, 300); });
  for (const node of [document.body, document.documentElement]) {
    observer.observe(node, { attributes: true });
  }
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", check);
  setTimeout(check, 60); // the first look may come before the page holds the element
  const stopPrint = onPrint(() => { element.style.setProperty("--ground", "#fff"); if (was) call((was = false)); }, check);
  return () => { observer.disconnect(); query.removeEventListener("change", check); stopPrint(); };
}
// Paper is white and as wide as it is: what was drawn for the screen is drawn again for it.
function onPrint(before, after) {
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  return () => { removeEventListener("beforeprint", before); removeEventListener("afterprint", after); };
}

// ------------------------------------------------------------------------- colours

// Quiet where it is right, loud where it is wrong; monotone in lightness on either
// side of the tolerance, and no red beside green anywhere.
const PALETTES = {
  light: {
    pass: ["#f7f8fa", "#dfe5ee", "#b9c6d8", "#93a7c4"],
    fail: ["#fdc776", "#f28e2b", "#d6453d", "#9c1458", "#4b0c6b"],
    signed: ["#08306b", "#2b72b8", "#8ec1e6", "#f7f7f7", "#f2b48c", "#c4542e", "#6b1d08"],
    equal: "#ffffff", nan: "#000000", inf: "#ff4df2", stripes: ["#ececfd", "#7474e8"],
    ring: "#9c1458", cross: "rgba(0,0,0,.42)", pin: ["#000", "#fff"],
  },
  dark: {
    pass: ["#20242b", "#2c3440", "#3b4a5e", "#4f6685"],
    fail: ["#7a3b12", "#c2571a", "#f28e2b", "#fdc04d", "#fff3a3"],
    signed: ["#9bd0ff", "#4a90d9", "#1f4470", "#16181d", "#6b3019", "#d9733f", "#ffc9a3"],
    equal: "#16181d", nan: "#ffffff", inf: "#c800bb", stripes: ["#16302c", "#22a38b"],
    ring: "#ffd27a", cross: "rgba(255,255,255,.5)", pin: ["#fff", "#000"],
  },
};
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const pack = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
function ramp(stops, n) {
  const colours = stops.map(channels);
  return Uint32Array.from({ length: n }, (_, i) => {
    const t = (i / (n - 1)) * (colours.length - 1);
    const k = Math.min(colours.length - 2, Math.floor(t));
    return pack([0, 1, 2].map((c) =>
      Math.round(colours[k][c] * (k + 1 - t) + colours[k + 1][c] * (t - k))));
  });
}
const css = (u) => `rgb(${u & 255},${(u >> 8) & 255},${(u >> 16) & 255})`;
const lightness = (u) => 0.299 * (u & 255) + 0.587 * ((u >> 8) & 255) + 0.114 * ((u >> 16) & 255);

function inks(dark) {
  const palette = dark ? PALETTES.dark : PALETTES.light;
  return {
    ...palette,
    dark,
    passRamp: ramp(palette.pass, 256),
    failRamp: ramp(palette.fail, 256),
    signedRamp: ramp(palette.signed, 513),
    equalInk: pack(channels(palette.equal)),
    nanInk: pack(channels(palette.nan)),
    infInk: pack(channels(palette.inf)),
    stripeInks: palette.stripes.map((c) => pack(channels(c))),
  };
}
const STRIPES = 1; // not a colour (alpha is 0): "draw stripes here"
const VOID = 0;

// One number per entry says how bad it is and how it is drawn: 2000 for each class
// (agrees, undecided, disagrees) plus log10 of the error, with places of their own for
// what is not a number. Larger is worse, so a tile shows its maximum.
const NAN_CODE = 900;
const INF_CODE = 800;
const EQUAL_CODE = -900;
const CLASS_STEP = 2000;
const classOf = (code) => (code > 1.5 * CLASS_STEP ? 2 : code > 0.5 * CLASS_STEP ? 1 : 0);

function errorColour(inks, low, high, line) {
  const { passRamp, failRamp } = inks;
  return (code) => {
    if (code === -Infinity) return VOID;
    const kind = classOf(code);
    const log = code - CLASS_STEP * kind;
    if (log > 850) return inks.nanInk;
    if (log > 750) return inks.infInk;
    if (kind === 1) return STRIPES;
    if (kind === 2) return failRamp[(clamp((log - line) / (high - line), 0, 1) * 255) | 0];
    if (log < -850) return inks.equalInk;
    return passRamp[(clamp((log - low) / (line - low), 0, 1) * 255) | 0];
  };
}
function valueColour(inks, largest) {
  const linear = largest * 1e-2; // below this fraction the scale is linear
  const reach = Math.asinh(1 / 1e-2);
  return (value) => {
    if (Number.isNaN(value)) return inks.nanInk;
    if (!Number.isFinite(value)) return inks.infInk;
    const t = largest > 0 ? Math.asinh(value / linear) / reach : 0;
    return inks.signedRamp[clamp(Math.round((t + 1) * 256), 0, 512)];
  };
}

// Nearest neighbour on the grid of device pixels: no cell is ever blurred or dropped.
function paint(canvas, cells, rows, columns, width, height, colour, inks) {
  const context = canvas.getContext("2d");
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  // one buffer per canvas: a picture for every movement of a slider is a lot of garbage
  let image = canvas.buffer;
  if (image?.width !== width || image.height !== height) {
    image = canvas.buffer = context.createImageData(width, height);
  }
  const pixels = new Uint32Array(image.data.buffer);
  const line = new Uint32Array(columns);
  const column = Int32Array.from({ length: width }, (_, x) => Math.floor((x * columns) / width));
  let last = -1;
  let striped = false;
  for (let y = 0; y < height; y++) {
    const row = Math.floor((y * rows) / height);
    if (row !== last) {
      striped = false;
      for (let j = 0; j < columns; j++) {
        line[j] = colour(cells[row * columns + j]);
        if (line[j] === STRIPES) striped = true;
      }
      last = row;
    }
    const start = y * width;
    if (!striped) {
      for (let x = 0; x < width; x++) pixels[start + x] = line[column[x]];
    } else {
      for (let x = 0; x < width; x++) {
        const ink = line[column[x]];
        pixels[start + x] = ink === STRIPES ? inks.stripeInks[((x + y) >> 2) & 1] : ink;
      }
    }
  }
  context.putImageData(image, 0, 0);
  return context;
}

// The scale of the error colours, as wide as the panel above it, with its decades.
function errorScale(g, S, [low, high], at, colour, mute) {
  const X = (v) => ((v - low) / (high - low)) * S;
  for (let x = 0; x < S; x++) {
    const v = low + ((x + 0.5) / S) * (high - low);
    g.fillStyle = css(colour(v + (v > at ? 2 * CLASS_STEP : 0)));
    g.fillRect(x, 0, 2, 10); // the next one covers half: no seams at 1.5 pixels a point
  }
  g.fillStyle = mute;
  g.textAlign = "center";
  for (let v = low; v <= high; v += S < 240 ? 8 : 4) {
    g.fillRect(X(v) - (v === low ? 0 : 0.5), 10, 1, 3);
    g.fillText(`10${superscript(v)}`, clamp(X(v), 13, S - 13), 23);
  }
}
function freshScale(canvas, S, k) {
  canvas.width = S * k;
  canvas.height = 27 * k;
  Object.assign(canvas.style, { width: `${S}px`, height: "27px" });
  const g = canvas.getContext("2d");
  g.scale(k, k);
  g.font = "10.5px system-ui, sans-serif";
  return g;
}

const ROOMY = [34, 15]; // pixels across and down from which on a cell may hold a number

// Large cells stand apart, so that each is seen as one entry.
function cellGaps(canvas, rows, columns, scale, root, ink) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const thin = Math.max(1, Math.round(scale));
  if (Math.min(width / columns, height / rows) < 9 * scale) return context;
  context.fillStyle = getComputedStyle(root).getPropertyValue("--paper") || (ink.dark ? "#111418" : "#fff");
  for (let c = 1; c < columns; c++) context.fillRect(Math.round((c * width) / columns), 0, thin, height);
  for (let r = 1; r < rows; r++) context.fillRect(0, Math.round((r * height) / rows), width, thin);
  return context;
}

// --------------------------------------------------------------------------- numbers

const view = (bytes, Type) => {
  if (!bytes) return null;
  const raw = bytes instanceof ArrayBuffer ? new Uint8Array(bytes)
    : new Uint8Array(bytes.buffer, bytes.byteOffset ?? 0, bytes.byteLength);
  return new Type(raw.slice().buffer);
};
// Planes of a block, or of a tile of it, with what is derived from them on demand.
function decode(raw, meta, place) {
  const data = { meta, ...place };
  for (const k of ["a", "n", "d", "e", "ai", "ni"]) data[k] = view(raw[k], Float32Array);
  for (const k of ["ri", "ci", "cols", "support"]) data[k] = view(raw[k], Uint32Array);
  data.v = view(raw.v, Uint8Array);
  data.count = data.d.length;
  data.logs = {};
  return data;
}
function wholeBlock(raw, meta) {
  const [rows, columns] = meta.grid ?? [meta.rows, meta.columns];
  return decode(raw, meta, { rows, columns, r0: 0, r1: meta.rows, c0: 0, c1: meta.columns });
}
const size = (real, imaginary, i) =>
  imaginary ? Math.hypot(real[i], imaginary[i]) : Math.abs(real[i]);

// log10 of the error, with codes for what is not a number; in units of the user
function logErrors(data, metric) {
  if (data.logs[metric]) return data.logs[metric];
  const { a, n, ai, ni, d } = data;
  const { floor, unit } = data.meta;
  const logs = new Float32Array(data.count);
  const shift = metric === "abs" ? Math.log10(unit) : 0;
  for (let i = 0; i < logs.length; i++) {
    const error = Math.abs(d[i]);
    if (Number.isNaN(error)) logs[i] = NAN_CODE;
    else if (error === Infinity) logs[i] = INF_CODE;
    else if (error === 0) logs[i] = EQUAL_CODE;
    else if (metric === "abs") logs[i] = Math.log10(error) + shift;
    else logs[i] = Math.log10(error / Math.max(size(a, ai, i) + size(n, ni, i), floor));
  }
  return (data.logs[metric] = logs);
}
// What an error is compared with, per entry: |a| + |n|, or 1 in units of the user.
function sizes(data, metric) {
  if (data.sizes?.[metric]) return data.sizes[metric];
  const { a, n, ai, ni } = data;
  const { floor, unit } = data.meta;
  const out = new Float32Array(data.count);
  for (let i = 0; i < out.length; i++) {
    out[i] = metric === "abs" ? 1 / unit : Math.max(size(a, ai, i) + size(n, ni, i), floor);
  }
  return ((data.sizes ??= {})[metric] = out);
}
// The verdicts of the check, or, at another tolerance, the same rule in the page:
// wrong if the error exceeds the tolerance and the error bar; undecided if the error
// bar is too wide to tell. What the check told goes on being told where more is allowed;
// where less is, entries beside which others are far larger are measured by those.
function codes(data, metric, tolerance) {
  const logs = logErrors(data, metric);
  const out = (data.codes ??= new Float32Array(data.count)); // one buffer, used again
  const { v, e, d } = data;
  const { safety, scale, unit, rtol } = data.meta;
  if (tolerance === null) {
    for (let i = 0; i < out.length; i++) out[i] = logs[i] + CLASS_STEP * v[i];
    return out;
  }
  const line = Math.log10(tolerance);
  const whole = sizes(data, metric);
  const relative = metric === "rel", top = relative ? (number(scale) || 0) / unit : 0;
  const tally = (out.tally = [0, 0, 0]);
  for (let i = 0; i < out.length; i++) {
    const log = logs[i];
    const blur = safety * e[i], told = relative && v[i] === 0;
    let kind = 0;
    if (log >= 750) kind = Math.max(1, v[i]);
    else if (told && tolerance >= rtol) kind = 0;
    else if (log > line && Math.abs(d[i]) > blur) kind = 2;
    else if (told) kind = blur > tolerance * Math.max(whole[i], top) ? 1 : 0;
    else if (log > line || blur > tolerance * whole[i]) kind = 1;
    out[i] = log + CLASS_STEP * kind;
    tally[kind]++;
  }
  return out;
}
// The values of the entries that are shown; a plain loop, ten times as fast as `from`.
function gather(plane, index) {
  const out = new Float32Array(index.length);
  for (let k = 0; k < out.length; k++) out[k] = index[k] < 0 ? NaN : plane[index[k]];
  return out;
}
const same = (a, b) => {
  if (a?.length !== b?.length) return false;
  for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) return false;
  return true;
};
// Worst entry of each tile of a window: all panels show that same entry.
function pool(code, columns, total, window, down, across) {
  const { g0, g1, h0, h1 } = window;
  const index = new Int32Array(down * across).fill(-1);
  const worst = new Float32Array(down * across).fill(-Infinity);
  const tile = Int32Array.from({ length: h1 - h0 }, (_, j) => Math.floor((j * across) / (h1 - h0)));
  for (let i = g0; i < g1; i++) {
    const out = Math.floor(((i - g0) * down) / (g1 - g0)) * across;
    for (let j = h0, q = i * columns + h0; j < h1 && q < total; j++, q++) {
      const k = out + tile[j - h0];
      if (code[q] > worst[k]) { worst[k] = code[q]; index[k] = q; }
    }
  }
  return { index, worst };
}

// ---------------------------------------------------------------------------- style

const CSS = `
.gl{--fg:var(--jp-ui-font-color1,var(--vscode-editor-foreground,var(--colab-primary-text-color,#1c2128)));--mute:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#5b6470));
--line:var(--jp-border-color2,var(--vscode-panel-border,#d9dee5));--paper:var(--jp-layout-color1,var(--vscode-editor-background,#fff));--soft:#f4f6f9;
--accent:#1763a6;--bad:#b3261e;--warn:#855300;--ok:#37618e;--badsoft:#fcefed;--warnsoft:#faf3e4;--oksoft:#eef3f9;
--sans:var(--jp-ui-font-family,system-ui,-apple-system,"Segoe UI",sans-serif);--mono:var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,monospace);
font:13px/1.45 var(--sans);color:var(--fg);max-width:1180px;padding:4px 5px 6px;position:relative;text-align:left}
.gl.dark{--fg:var(--jp-ui-font-color1,var(--vscode-editor-foreground,#e6e9ee));--mute:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#a4acb8));--line:var(--jp-border-color2,var(--vscode-panel-border,#3a414c));
--paper:var(--jp-layout-color1,var(--vscode-editor-background,#111418));--soft:#1b2027;--accent:#6cb6ff;--bad:#ff8f80;--warn:#f2c063;--ok:#9dbde0;--badsoft:#2d1a1a;--warnsoft:#2a2316;--oksoft:#18222e}
.gl *,.gl *::before{box-sizing:border-box}.gl :focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:3px}
.gl p,.gl ul,.gl dl,.gl dd,.gl h3,.gl h4,.gl figure{margin:0!important;padding:0!important;max-width:none}.gl .num,.gl code{font-family:var(--mono)!important;font-variant-numeric:tabular-nums;background:none!important;padding:0!important;color:inherit!important}
.gl dt,.gl dd{float:none!important;width:auto!important;font-weight:400!important;margin:0!important;padding:0!important;display:block!important}.gl dl{display:grid!important;width:auto!important}.gl .num{font-size:12px}.gl .mute{color:var(--mute)}.gl .ok{--tone:var(--ok);--tint:var(--oksoft)}.gl .warn{--tone:var(--warn);--tint:var(--warnsoft)}.gl .bad{--tone:var(--bad);--tint:var(--badsoft)}
.gl .name,.gl .where{unicode-bidi:isolate}.gl .mark{display:inline-flex;gap:5px;align-items:baseline;color:var(--tone);font-weight:600;white-space:nowrap}.gl i{font-style:normal}
.gl header{display:flex;gap:11px;align-items:center;margin:0 0 10px}.gl .seal{flex:none;width:30px;height:30px;border-radius:50%;display:grid;place-items:center;background:var(--tone);color:var(--paper);font:700 16px/1 var(--sans)}
.gl h3{font:600 16px/1.3 var(--sans);color:var(--fg);overflow-wrap:anywhere}.gl header p{color:var(--mute);font-size:12px;overflow-wrap:anywhere}
.gl .finding{border-left:3px solid var(--tone);background:var(--tint);border-radius:0 6px 6px 0;padding:7px 12px 8px;margin:0 0 6px;list-style:none;overflow-wrap:anywhere}
.gl .finding b{font-weight:600}.gl .finding .advice{display:block;margin-top:2px}.gl .finding .advice::before{content:"→ ";color:var(--tone);font-weight:600}.gl .finding .where{font-family:var(--mono);font-size:12px}
.gl details{margin:0 0 8px}.gl summary{cursor:pointer;color:var(--mute);font-size:12px;width:max-content;max-width:100%}.gl details>*:not(summary){margin-top:6px}
.gl .facts{display:grid;grid-template-columns:max-content 1fr;gap:1px 14px;font-size:12px}.gl .facts dt{color:var(--mute)}.gl .facts dd{overflow-wrap:anywhere}
.gl .blocks{border:1px solid var(--line);border-radius:8px;margin:10px 0 12px;overflow:hidden}.gl .blocks .rows.many{max-height:202px;overflow-y:auto;overscroll-behavior:auto}
.gl .brow{display:grid;grid-template-columns:16px minmax(90px,1.3fr) minmax(60px,.6fr) minmax(80px,1.5fr) 68px minmax(96px,.7fr);gap:10px;align-items:center;padding:3px 10px 3px 8px;cursor:pointer;border-left:3px solid transparent}
.gl .brow+.brow{border-top:1px solid color-mix(in srgb,var(--line) 55%,transparent)}.gl .brow:hover{background:var(--soft)}.gl .brow[aria-selected=true]{background:var(--soft);border-left-color:var(--accent)}.gl .brow:focus-visible{outline-offset:-2px}
.gl .brow>*{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.gl .brow>.name,.gl .lrow>.name{white-space:normal;overflow-wrap:anywhere;line-height:1.3;position:relative}.gl .brow .name{font-family:var(--mono);font-size:12px}.gl .brow[aria-selected=true] .name{font-weight:700}.gl .brow .g{color:var(--tone);font-weight:700;text-align:center}
.gl .brow .shape,.gl .brow .tally{color:var(--mute);font-size:12px}.gl .brow .worst,.gl .brow .tally{text-align:right}.gl .bhead,.gl .bhead .shape,.gl .bhead .tally{color:var(--mute);font-size:11px}.gl .bhead{cursor:default;background:none!important;border-bottom:1px solid var(--line);min-height:25px}
.gl .track{position:relative;height:8px;border-radius:4px;background:color-mix(in srgb,var(--line) 45%,transparent);overflow:visible!important}.gl .track i{position:absolute;left:0;top:0;bottom:0;border-radius:4px;min-width:4px}.gl .track.none{background:none}.gl .track u{position:absolute;top:-4px;bottom:-4px;width:1.5px;background:var(--fg);opacity:.55}
.gl .bar{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center;margin:0 0 8px}.gl .bar .grow{flex:1 1 200px}.gl .tools{justify-content:flex-end}.gl.small .tools{justify-content:flex-start}.gl .group,.gl .set{display:inline-flex}.gl .set{gap:8px;align-items:center}
.gl button,.gl select,.gl input[type=text]{font:inherit;font-size:12px;color:var(--fg);background:var(--paper);border:1px solid var(--line);border-radius:6px;padding:0 9px;height:26px;margin:0;cursor:pointer;box-shadow:none}.gl button:hover{background:var(--soft)}
.gl .group button{border-radius:0;margin-left:-1px}.gl .group button:first-child{border-radius:6px 0 0 6px;margin-left:0}.gl .group button:last-child{border-radius:0 6px 6px 0}.gl .group button:only-child{border-radius:6px}.gl button[aria-pressed=true]{background:var(--fg);color:var(--paper);border-color:var(--fg)}.gl button.more{color:var(--mute);border-style:dashed}.gl button:disabled,.gl input:disabled,.gl button[aria-disabled=true]{opacity:.45;cursor:default}
.gl .status{flex:1 1 260px;line-height:1.5;padding:3px 0}.gl .status>*{margin-right:9px}.gl .status>.mark{margin-right:7px}.gl .status .name{font-family:var(--mono);font-size:13px;font-weight:700;overflow-wrap:anywhere}
.gl .panels{display:flex;flex-wrap:wrap;gap:12px 20px;align-items:flex-start}.gl .cap{display:flex;justify-content:space-between;gap:8px;margin:0 0 4px;white-space:nowrap}.gl .cap b{font-weight:600}.gl .cap span{color:var(--mute);font-size:11px;overflow:hidden;text-overflow:ellipsis}
.gl .stack{position:relative;width:max-content}.gl canvas{display:block;touch-action:none;max-width:none;margin:0;border-radius:0}.gl .stack .over{position:absolute;left:0;top:0;pointer-events:none}.gl .map{box-shadow:0 0 0 1px var(--line);border-radius:2px}.gl .stack .map{cursor:crosshair}
.gl .withedge{display:grid;grid-template-columns:max-content max-content;gap:3px}.gl .scale{position:relative;margin-top:8px}
.gl{--handle:radial-gradient(circle at 50% 5px,var(--fg) 0 4.5px,transparent 5px),linear-gradient(90deg,transparent 8px,var(--fg) 8px 10px,transparent 10px) 0 0/100% 17px no-repeat}
.gl .scale input{position:absolute;left:-9px;top:-5px;width:calc(100% + 18px);height:22px;margin:0;background:none;-webkit-appearance:none;appearance:none;cursor:ew-resize;border:0;padding:0}
.gl .scale input:focus-visible{outline-offset:-6px}/* round the bar alone: numbers stand below it */
.gl .scale input::-webkit-slider-runnable-track{background:none;height:22px}.gl .scale input::-moz-range-track{background:none;height:22px}
.gl .scale input::-webkit-slider-thumb{-webkit-appearance:none;width:18px;height:22px;border:0;border-radius:0;background:var(--handle)}
.gl .scale input::-moz-range-thumb{width:18px;height:22px;border:0;border-radius:0;background:var(--handle)}
.gl .tol{display:flex;gap:8px;align-items:center;font-size:12px;min-height:24px;margin-top:2px}.gl .tol button{height:20px;padding:0 7px;font-size:11px}
.gl .legend{display:flex;gap:3px 10px;flex-wrap:wrap;font-size:10.5px;color:var(--mute)}.gl .legend span{display:inline-flex;gap:5px;align-items:center}.gl .legend i{width:11px;height:11px;border:1px solid var(--line);border-radius:2px}
.gl .entry{display:grid;grid-template-columns:minmax(180px,1fr) minmax(250px,1.25fr) minmax(210px,1fr);gap:8px 26px;border:1px solid var(--line);border-radius:8px;padding:10px 14px;margin:12px 0 8px;min-height:112px;align-items:start;overflow-wrap:anywhere}
.gl.narrow .entry{grid-template-columns:minmax(0,1.2fr) minmax(0,1fr)}.gl.narrow .entry>:first-child{grid-column:1/-1}.gl.small .entry{grid-template-columns:minmax(0,1fr)}.gl .entry h4{font:600 15px/1.3 var(--mono);margin:0 0 2px!important;overflow-wrap:anywhere;color:var(--fg)}.gl .entry h4.small{font-size:12.5px;line-height:1.4}.gl .entry svg{margin:2px 0 6px;max-width:100%;height:auto}.gl .entry .pair{display:grid;grid-template-columns:max-content 1fr;gap:1px 14px;font-size:12px;align-items:baseline}.gl .entry .pair dt{color:var(--mute)}.gl .entry .pair dd{font-family:var(--mono);font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.gl .keys{color:var(--mute);font-size:11px;margin:2px 0 6px!important}.gl kbd{border:1px solid var(--line);border-bottom-width:2px;border-radius:3px;padding:0 4px;font:10px/14px var(--sans)!important;background:none!important;color:inherit!important;box-shadow:none!important;margin:0 1px}.gl figure.entryplot{max-width:372px;margin:2px 0 8px!important}
.gl svg{display:block;overflow:visible}.gl svg text{fill:var(--fg);font:11px var(--sans);paint-order:stroke;stroke:var(--ground,var(--paper));stroke-width:3px;stroke-linejoin:round}.gl .rail text{stroke:none!important}.gl svg text.mute{fill:var(--mute)}.gl svg .grid{stroke:var(--line);stroke-width:.6;opacity:.8}
.gl .hide{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}.gl .chip[aria-pressed=true] .mute{color:inherit}.gl .chips{display:flex;align-items:center;flex-wrap:wrap;gap:5px 6px;margin:6px 0}.gl button.chip{display:inline-flex;gap:6px;align-items:center;border-radius:13px;padding:3px 10px 3px 8px;height:auto;min-height:26px;max-width:100%;text-align:left}.gl .chip i{color:var(--tone);font-weight:700}.gl .chip .name{overflow-wrap:anywhere;min-width:0;position:relative}
.gl .chip[aria-pressed=true] i{color:inherit}.gl.narrow .bar{gap:6px 8px}.gl.narrow .status{flex-basis:200px}.gl.small .status{flex-basis:100%}.gl.narrow .brow{grid-template-columns:16px minmax(80px,1.4fr) minmax(70px,1fr) 64px minmax(80px,.8fr)}.gl.narrow .brow .shape{display:none}
.gl.small .brow{grid-template-columns:16px minmax(0,1fr) 72px 62px}.gl.small .brow .tally,.gl.small .span{display:none}.gl.small .bhead>*{white-space:normal}.gl.small .bhead .large{display:none}.gl.small .set,.gl.small .set .group{flex-wrap:wrap;row-gap:4px}.gl.small .set .group button{padding:0 6px}
.gl .layers{border:1px solid var(--line);border-radius:8px;overflow:auto;max-height:480px;margin:0 0 6px;position:relative}
.gl .lrow,.gl button.fold{display:grid;grid-template-columns:var(--rail,30px) minmax(110px,1.4fr) minmax(60px,.6fr) minmax(70px,.9fr) 58px minmax(166px,.6fr);gap:10px;align-items:center}.gl .lrow{min-height:27px;padding:1px 10px 1px 4px;border-left:3px solid var(--tone,transparent);cursor:pointer;overflow:hidden}
.gl .lrow:hover{background:var(--soft)}.gl .lrow.bad,.gl .ldetail.bad{background:var(--badsoft)}.gl .lrow.warn,.gl .ldetail.warn{background:color-mix(in srgb,var(--warnsoft) 55%,transparent)}.gl .lrow>*{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.gl .lrow>.rail{overflow:visible}.gl .lrow:focus-visible{outline-offset:-2px}
.gl .lrow .name,.gl .fold .name{font-family:var(--mono);font-size:12px}.gl .lrow[aria-expanded=true] .name{font-weight:700}.gl .lrow .shape,.gl .lrow .tally,.gl .fold .tally{font-size:12px;color:var(--mute)}.gl .lrow .tally,.gl .fold .tally{color:var(--tone,var(--mute))}.gl .lrow .worst,.gl .fold .worst{text-align:right}.gl .lrow .track i,.gl .fold .track i{background:var(--tone,var(--mute))}
.gl .lhead,.gl .lhead .name,.gl .lhead .shape{font:11px var(--sans);color:var(--mute)}.gl .lhead{position:sticky;top:0;z-index:1;cursor:default;background:var(--paper)!important;border-bottom:1px solid var(--line);height:25px}
.gl{--lane:color-mix(in srgb,var(--mute) 55%,var(--paper))}.gl .rail path{fill:none;stroke:var(--lane);stroke-width:1.5}.gl .rail path.spoiled{stroke:var(--warn);stroke-width:2}.gl .rail path.inner{stroke-dasharray:2 2.5}.gl .rail circle{fill:var(--paper);stroke:var(--tone,var(--mute));stroke-width:1.5}.gl svg.rail text{font:700 10px/1 var(--sans);fill:var(--tone,var(--mute))}.gl .bad .rail circle{fill:var(--bad)}.gl .bad svg.rail text{fill:var(--paper)}
.gl .ldetail{position:relative;padding:1px 14px 9px 4px;border-left:3px solid var(--tone,transparent);overflow-wrap:anywhere}.gl .past i{position:absolute;top:0;bottom:0;width:1.5px;background:var(--lane);margin-left:4px}.gl .past i.spoiled{background:var(--warn);width:2px}.gl .look{margin-top:5px!important}
.gl .fold .run{grid-column:span 2}.gl button.fold{width:100%;height:auto;min-height:27px;text-align:left;border:0;border-left:3px solid var(--tone,transparent);border-radius:0;background:var(--soft);color:var(--mute);padding:0 10px 0 4px;overflow:hidden}.gl button.fold>.run{padding:3px 0;overflow-wrap:anywhere;line-height:1.3}.gl button.fold:hover{color:var(--fg)}.gl button.fold:focus-visible{outline-offset:-2px}
.gl.narrow .lrow,.gl.narrow button.fold{grid-template-columns:var(--rail,30px) minmax(110px,1.6fr) minmax(60px,.8fr) minmax(40px,.5fr) 54px 124px}.gl.narrow .long{display:none}
.gl.slim .lrow,.gl.slim button.fold{grid-template-columns:var(--rail,30px) minmax(90px,1.6fr) minmax(60px,.8fr) 54px 124px}.gl.slim .lrow .track,.gl.slim .fold .track,.gl.slim .lhead .worst{display:none}.gl.slim .lhead>.size{text-align:right}
.gl.small .lrow,.gl.small button.fold{grid-template-columns:var(--rail,30px) minmax(0,1fr) 44px 58px}.gl.small .fold .run{grid-column:auto}.gl.small .fold .tally,.gl.small .lrow .tally,.gl.small .lrow .shape,.gl.small .lhead>:last-child{display:none}
.gl svg .over{stroke-width:4px;pointer-events:none}.gl .nowrap{white-space:nowrap}.gl .keys .ok,.gl .keys .bad,.gl .keys .warn{color:var(--tone)}.gl.nested{padding-left:0;padding-right:0;border-top:1px solid var(--line);margin-top:10px;padding-top:10px}
.gl .blank>*:not(.bar),.gl .blank .group{display:none}.gl .message{color:var(--bad);font-size:12px}.gl.busy .panels,.gl .waits{opacity:.55;transition:opacity .2s .25s}
@media (prefers-reduced-motion:no-preference){.gl .track i{transition:width .12s}}
@media (forced-colors:active){.gl .seal,.gl .track,.gl .track *,.gl .legend i,.gl .scale input,.gl button[aria-pressed=true]{forced-color-adjust:none}}
@media print{.gl .blocks .rows.many,.gl .layers{max-height:none;overflow:visible}.gl header,.gl .finding,.gl .panels,.gl .entry,.gl .brow,.gl .lrow{break-inside:avoid}.gl .hint,.gl .tools>:not(.status){display:none}.gl .bar{break-after:avoid}
.gl details::details-content{content-visibility:visible}
.gl{--fg:#1c2128;--mute:#5b6470;--line:#d9dee5;--paper:#fff}
.gl .seal,.gl .track,.gl .track *,.gl .legend i,.gl .finding,.gl .lrow,.gl .ldetail,.gl .scale,.gl button[aria-pressed=true]{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
`;

// A minus that was copied is one that Python reads.
function copyNumbers(event) {
  const text = getSelection().toString();
  if (!text.includes(MINUS)) return;
  event.clipboardData.setData("text/plain", text.replaceAll(MINUS, "-"));
  event.preventDefault();
}
function shell(element, label) {
  const style = h("style");
  style.textContent = CSS;
  const root = h("div", { class: "gl", role: "group", "aria-label": label, oncopy: copyNumbers }, style);
  element.append(root);
  return root;
}
const PAPER = 680; // pixels: upright A4 and letter have some 720 between their margins
// Runs `draw(width)` once at a known width and again whenever the width changes.
function onWidth(root, draw) {
  let width = 0;
  const look = () => {
    const now = Math.floor(root.clientWidth) - 10;
    if (now <= 50 || now === width) return;
    width = now;
    root.classList.toggle("narrow", width < 760);
    root.classList.toggle("slim", width >= 480 && width < 600);
    root.classList.toggle("small", width < 480);
    draw(width);
  };
  const observer = new ResizeObserver(look);
  observer.observe(root);
  look();
  const wide = (value) => () => { root.style.width = value; look(); };
  const stopPrint = onPrint(wide(`${PAPER}px`), wide(""));
  return () => { observer.disconnect(); stopPrint(); };
}
// Whoever holds a control by the keyboard goes on holding what takes its place.
const holder = (place) => {
  const held = place.getRootNode().activeElement;
  return held !== place && place.contains(held) ? held.dataset.key ?? null : null;
};
function hold(place, key) {
  if (key !== null) [...place.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key)?.focus({ preventScroll: true });
}
function refill(place, children) {
  const key = holder(place);
  place.replaceChildren(...children);
  hold(place, key);
}
// Buttons that have to wait stay where they are in the order of the keyboard: one that
// is disabled lets go of the focus.
const pause = (buttons, on) => { for (const button of buttons) button.setAttribute("aria-disabled", String(on)); };
const paused = (button) => button.getAttribute("aria-disabled") === "true";
function debounce(call, wait) {
  let timer = 0;
  return (...values) => { clearTimeout(timer); timer = setTimeout(() => call(...values), wait); };
}

// ------------------------------------------------------------- the head of a report

// On a page that holds nothing else a result begins the outline; in a notebook it is a part.
const level = (alone) => document.querySelector("main[data-gradlab]") ? alone : null;
function reportHead(state) {
  const facts = Object.fromEntries(state.facts ?? []);
  const line = [facts["numeric side"], facts.coverage && `coverage ${facts.coverage}`, facts.cost];
  return h("header", { role: "none", class: CLASSES[state.verdict] },
    h("span", { class: "seal", "aria-hidden": "true" }, GLYPHS[state.verdict]),
    h("div", {},
      h("h3", { "aria-level": level(1) }, prose(state.headline)),
      h("p", {}, [state.subject, ...line].filter(Boolean).join(" · "))));
}
const SEVERITIES = { error: ["bad", "✗"], warning: ["warn", "!"], note: ["ok", "i"] };
// A number is no name to be read in a sentence: nn.Sequential calls its layers so.
const layerName = (name) => (/^\d+$/.test(name) ? `layer ${name}` : name);
function placeWords(places, layers) {
  const NAMED = 4;
  const numbered = (name) => layers.includes(name) && layerName(name) !== name;
  const told = places.slice(0, NAMED).map((name, i) => [i ? ", " : " in ", numbered(name) && "layer ", h("span", { class: "where" }, breakable(name))]);
  return [told, places.length > NAMED && ` and ${places.length - NAMED} more`];
}
function findingCard(finding, layers, choose) {
  const [tone, glyph] = SEVERITIES[finding.severity];
  // "in act — `act` (Swish, model.py:5) is wrong: ..." would name it twice
  const [begin, name, kind] = finding.evidence.match(/^`([^`]+)` \(([^()]+)\) is wrong[.:] /) ?? [];
  const twice = finding.places.length === 1 && name === finding.places[0];
  const evidence = twice ? finding.evidence.slice(begin.length) : finding.evidence;
  const card = h("li", { class: `finding ${tone}` },
    h("span", { class: "mark" }, h("i", { "aria-hidden": "true" }, glyph), finding.kind),
    placeWords(finding.places, layers), twice && ` (${kind})`,
    finding.severity !== "error" && h("span", { class: "mute" }, ` (${finding.severity})`),
    " — ", withCode(evidence),
    h("span", { class: "advice" }, withCode(finding.advice)));
  card.addEventListener("click", choose);
  return card;
}
// The first few findings are cards; the others are one click away.
function findingList(findings, layers, choose) {
  const SHOWN = 4;
  const card = (finding) => findingCard(finding, layers, () => choose(finding.places[0]));
  const told = findings.filter((f) => !f.quiet), rest = told.slice(SHOWN);
  return [h("ul", { "aria-label": "Findings" }, told.slice(0, SHOWN).map(card)),
    rest.length > 0 && h("details", {},
      h("summary", FOCUS, `${rest.length} more finding${rest.length > 1 ? "s" : ""}`), h("ul", {}, rest.map(card)))].filter(Boolean);
}
function reportFoot(state) {
  const notes = (state.findings ?? []).filter((f) => f.quiet).map((f) => f.evidence);
  const remarks = [...notes, ...(state.remarks ?? [])].map((r) => [h("dt", {}, "remark"), h("dd", {}, r)]);
  // where no finding says why something is undecided, what was done does
  const open = state.verdict === 1 && state.findings?.every((f) => f.quiet) ? "" : null;
  return h("details", { open }, h("summary", FOCUS, "How this was checked"),
    h("dl", { class: "facts" },
      (state.facts ?? []).map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]), remarks));
}

// Whether there is no analytic value, of another shape or from a backward that raised, its
// own or a layer's: its numbers are nan then, as where nan was returned.
function unsaid(meta, findings) {
  if (!Number.isNaN(number(meta.worst?.rel ?? 0))) return false;
  const own = findings.filter((f) => f.places.includes(meta.input.name));
  return own.length ? own.some((f) => ["wrong shape", "broadcast reduction", "stale cache", "unknown cause", "raised an error"].includes(f.kind)) : findings.every((f) => f.kind !== "nonfinite");
}

// The list of blocks, worst first: a log bar of the worst error each, the tolerance
// drawn through all of them.
function blockList(blocks, onChoose, findings) {
  const LOW = -16, HIGH = 2;
  const x = (log) => `${(clamp((log - LOW) / (HIGH - LOW), 0, 1) * 100).toFixed(2)}%`;
  const prefix = commonPrefix(blocks.map((meta) => meta.name));
  const items = blocks.map((meta) => {
    const fill = h("i");
    const mark = h("u");
    const glyph = h("span", { class: "g", "aria-hidden": "true" });
    const tally = h("span", { class: "tally" });
    const known = meta.worst?.told && !unsaid(meta, findings);
    const row = h("div", { class: "brow", role: "option", ...FOCUS, tabindex: "-1", "data-key": meta.key, title: meta.name },
      glyph, named(meta.name, { prefix }),
      h("span", { class: "shape" }, shapeWords(meta.input.shape)),
      h("span", { class: "track", "aria-hidden": "true" }, fill, mark),
      h("span", { class: "worst num" }, known ? format(number(meta.worst.rel), 2) : "–"), tally);
    row.addEventListener("click", () => onChoose(meta.key));
    return { meta, row, fill, mark, glyph, tally, known };
  });
  const rows = h("div", { class: items.length > 10 ? "rows many" : "rows", role: "listbox", "aria-label": "Blocks of the Jacobian, worst first" }, items.map((i) => i.row));
  rows.addEventListener("keydown", (event) => {
    const at = items.findIndex((i) => i.row === event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || (to === undefined && event.key !== "Enter" && event.key !== " ")) return;
    const item = items[clamp(to ?? at, 0, items.length - 1)];
    item.row.focus();
    onChoose(item.meta.key);
    event.preventDefault();
    event.stopPropagation();
  });
  const bad = blocks.filter((b) => b.verdict === 2).length;
  const head = h("div", { class: "brow bhead", "aria-hidden": "true" }, h("span"),
    h("span", {}, h("span", { class: bad ? "large" : null }, `${count(blocks.length)} gradients`, h("span", { class: "long" }, ", worst first"), bad ? " · " : ""), bad ? `${count(bad)} wrong` : ""), h("span", { class: "shape" }, "shape"),
    h("span", {}, h("span", { class: "long" }, "worst relative "), "error", h("span", { class: "span" }, ", 10⁻¹⁶ … 10²")), h("span", { class: "worst" }), h("span", { class: "tally" }, "wrong entries"));
  function update(selected, tolerance, metric, inks) {
    for (const { meta, row, fill, mark, glyph, tally, known } of items) {
      const worst = meta.worst ? number(meta.worst.rel) : 0;
      const moved = tolerance !== null && metric === "rel";
      const { verdict } = meta; // of the check; another tolerance moves the line only
      const line = Math.log10(moved ? tolerance : meta.rtol);
      const log = worst === 0 ? LOW : Number.isFinite(worst) ? Math.log10(worst) : HIGH;
      row.setAttribute("aria-selected", meta.key === selected);
      row.tabIndex = meta.key === selected ? 0 : -1;
      row.className = `brow ${CLASSES[verdict]}`;
      glyph.textContent = GLYPHS[verdict];
      const total = meta.counts[0] + meta.counts[1] + meta.counts[2];
      tally.textContent = meta.counts[2] ? `${count(meta.counts[2])} of ${count(total)}${meta.coverage === "probe" ? " probes" : ""}`
        : meta.counts[1] ? `${count(meta.counts[1])} undecided` : "none";
      row.setAttribute("aria-label", `${meta.name}, ${WORDS[verdict]}${known ? `, worst relative error ${format(worst, 2)}` : ""}`);
      fill.style.width = x(log);
      fill.style.display = meta.worst ? "" : "none"; // without entries
      fill.style.background = css(verdict === 2 ? inks.failRamp[150] : verdict === 1 ? inks.stripeInks[1] : inks.passRamp[255]);
      mark.style.left = x(line);
    }
  }
  const reveal = (key) => {
    const item = items.find((i) => i.meta.key === key);
    if (item) rows.scrollTop = Math.max(0, item.row.offsetTop - rows.offsetTop - 60);
  };
  return { element: h("div", { class: "blocks" }, head, rows), update, reveal };
}

// =================================================================== JacobianExplorer

export function mountJacobian(element, host) {
  const root = shell(element, "Gradient check");
  const stops = [];
  const get = (key) => host.get(key);
  const report = get("page") ?? {};
  const findings = report.findings ?? [];
  let blocks = report.blocks ?? [];
  let ink = inks(false);
  let base = null;          // the whole block, or the worst of each of its tiles
  let tile = null;          // a part of a large block at full resolution (live only)
  let code = null;          // badness of every entry of the source in use
  let window_ = null;       // what part of the layout is seen: [r0, r1, c0, c1]
  let geometry = null;
  let selected = null;      // [row, column] of the picture
  let pinned = false;
  let hovered = null;
  let metric = get("metric") || "rel";
  let tolerance = get("tol") ?? null;
  let part = "abs";         // of complex entries: size, real or imaginary part
  let parted = false;       // somebody has chosen which
  let width = 900;

  // ---- the parts of the page
  let list = blockList(blocks, (key) => choosePart(key), findings);
  const status = h("div", { class: "status", role: "status", "aria-live": "polite" });
  const voice = h("div", { class: "hide", role: "status", "aria-live": "polite" });
  const lost = h("p", { role: "status" }); // why a block could not be loaded
  const button = (text, label, act, more = {}) =>
    h("button", { type: "button", ...FOCUS, "aria-label": label, title: label, onclick: act, ...more }, text);
  const relative = button("relative", "Show relative error", () => setMetric("rel"));
  const absolute = button("absolute", "Show absolute error", () => setMetric("abs"));
  const parts = Object.entries({ abs: ["|J|", "Show the sizes of complex entries"], re: ["real", "Show real parts"], im: ["imaginary", "Show imaginary parts"] })
    .map(([key, [words_, label]]) => [key, button(words_, label, () => { part = key; parted = true; draw(); })]);
  const partGroup = h("span", { class: "group", role: "group", "aria-label": "Part of complex entries" }, parts.map(([, choice]) => choice));
  const tools = h("div", { class: "bar tools" }, status, partGroup,
    h("span", { class: "group", role: "group", "aria-label": "Error" }, relative, absolute),
    h("span", { class: "group", role: "group", "aria-label": "Entries" },
      button("‹", "Previous wrong entry (p)", () => step(-1)),
      button("worst", "Worst entry (w)", () => pick(worstEntry(), true)),
      button("›", "Next wrong entry (n)", () => step(1))),
    h("span", { class: "group", role: "group", "aria-label": "Zoom" },
      button("−", "Zoom out", () => zoom(1.6)), button("+", "Zoom in", () => zoom(0.62)),
      button("all", "Show everything (0)", () => { window_ = everything(); draw(); })));
  const panels = {};
  for (const [key, title] of [["a", "analytic"], ["n", "numeric"], ["e", "error"]]) {
    const map = h("canvas", { class: "map", role: "img" });
    const over = h("canvas", { class: "over", "aria-hidden": "true" });
    const note = h("span");
    const scale = h("canvas", { "aria-hidden": "true" });
    const caption = h("b", {}, title);
    panels[key] = { map, over, note, scale, caption, stack: h("div", { class: "stack" }, map, over) };
    panels[key].figure = h("figure", {}, h("figcaption", { class: "cap" }, caption, note), panels[key].stack, h("div", { class: "scale" }, scale));
  }
  const E = panels.e;
  for (const [name, value] of Object.entries({ ...FOCUS, role: "application", "aria-roledescription": "heat map" })) E.map.setAttribute(name, value);
  E.right = h("canvas", { "aria-hidden": "true" });
  E.below = h("canvas", { "aria-hidden": "true" });
  const edged = h("div", { class: "withedge" });
  E.stack.replaceWith(edged);
  edged.append(E.stack, E.right, E.below);
  const slider = h("input", { type: "range", min: "-16", max: "2", step: "0.05", ...FOCUS, "aria-label": "Tolerance, on a log scale" });
  E.scale.after(slider);
  const tolText = h("span", {});
  const tolReset = button("as checked", "Back to the verdicts of the check", () => { slider.focus({ preventScroll: true }); setTolerance(null); });
  const legend = h("div", { class: "legend" });
  E.figure.append(h("div", { class: "tol" }, tolText, tolReset), legend);
  const entry = h("div", { class: "entry" });
  const extra = h("div", {});
  const together = (...parts) => [h("span", { class: "nowrap" }, parts), " "];
  const keys = h("p", { class: "keys hint" }, together("point to read ·"), together("click to pin, then the wheel zooms ·"), together("drag pans ·"),
    together(h("kbd", {}, "←↑↓→"), " move ·"), together(h("kbd", {}, "n"), h("kbd", {}, "p"), " wrong entries ·"), together(h("kbd", {}, "w"), " worst ·"),
    together(h("kbd", {}, "+"), h("kbd", {}, "−"), h("kbd", {}, "0"), " zoom"));
  if (report.headline) root.append(reportHead(report), ...findingList(findings, report.layers?.culprits ?? [], (where) => {
    const meta = blocks.find((b) => b.input.name === where || b.name === where);
    if (meta) choosePart(meta.key);
  }));
  const layers = h("div", {});
  root.append(layers);
  if (blocks.length > 1) root.append(list.element);
  const picture = h("div", {}, lost, tools, h("div", { class: "panels" }, panels.a.figure, panels.n.figure, E.figure), entry, extra, keys);
  if (blocks.length) root.append(picture);
  if (report.headline) root.append(reportFoot(report));
  root.append(voice);
  if (report.layers) drawLayers(layers, report.layers, (row) => {
    const part = blocks.find((b) => row.parameters.includes(b.input.name));
    if (part) choosePart(part.key);
  }, "Layers");

  // ---- state
  const meta = () => base.meta;
  const source = () => (tile && covers(tile) ? tile : base);
  const covers = (t) => window_[0] >= t.r0 && window_[1] <= t.r1 && window_[2] >= t.c0 && window_[3] <= t.c1;
  const everything = () => [0, meta().rows, 0, meta().columns];
  const shift = () => (metric === "abs" && number(meta().scale) > 0 ? Math.round(Math.log10(number(meta().scale))) : 0);
  const line = () => (tolerance !== null ? Math.log10(tolerance) : Math.log10(meta().rtol) + (metric === "abs" ? Math.log10(number(meta().scale) || 1) : 0));
  const range = () => [-16 + shift(), 2 + shift()];

  function choosePart(key) {
    if (!blocks.some((b) => b.key === key)) return;
    if (key !== get("param")) host.set("selected", []); // an entry of another block
    host.set("param", key);
    load();
  }
  function load() {
    const key = get("param") || blocks[0]?.key;
    const chosen = blocks.find((b) => b.key === key) ?? blocks[0];
    if (!chosen) return;
    root.classList.add("busy");
    host.load(chosen, (raw, fresh, error) => {
      root.classList.remove("busy");
      lost.textContent = error && base ? `${error} (this is still ${base.meta.name})` : error ?? "";
      lost.className = error ? "message" : "";
      if (!raw) return;
      base = wholeBlock(raw, fresh ?? chosen);
      tile = null;
      window_ = everything();
      hovered = null;
      pinned = false;
      const wish = get("selected");
      selected = wish && wish.length === 2 ? toPicture(wish) : null;
      pinned = selected !== null;
      recode();
      selected ??= worstEntry();
      if (!parted) part = tellingPart();
      list.reveal(chosen.key);
      draw();
    });
  }
  function recode() { code = codes(source(), metric, tolerance); code.source = source(); }
  function setMetric(next) {
    if (metric === next) return;
    metric = next;
    tolerance = null;
    host.set("metric", metric);
    tell();
    recode();
    draw();
  }
  const tell = debounce(() => host.set("tol", tolerance), 120);
  function setTolerance(value) {
    tolerance = value;
    tell();
    soon(true);
  }

  // ---- from places in the picture to entries and back
  // The matrix has one row per output; a gradient may be drawn in the shape of its input.
  function toMatrix([r, c]) {
    const [m, n] = meta().shape;
    const flat = r * meta().columns + c;
    return m === 1 ? [0, flat] : n === 1 ? [flat, 0] : [r, c];
  }
  function toPicture([i, j]) {
    const [m, n] = meta().shape;
    if (i < 0 || j < 0 || i >= m || j >= n) return null;
    const flat = m === 1 ? j : i;
    return m === 1 || n === 1 ? [Math.floor(flat / meta().columns), flat % meta().columns] : [i, j];
  }
  // Tile i of n covers the entries from floor(i length / n) on; this is the way back.
  const cellOf = (at, n, length) => (n === length ? at : Math.ceil(((at + 1) * n) / length - 1e-9) - 1);
  const entryOf = (cell, n, length) => Math.floor((cell * length) / n + 1e-9);
  // Index into the planes of the source in use, or -1 where it knows nothing.
  function find(place, src = source()) {
    const r = cellOf(place[0] - src.r0, src.rows, src.r1 - src.r0), c = cellOf(place[1] - src.c0, src.columns, src.c1 - src.c0);
    if (r < 0 || c < 0 || r >= src.rows || c >= src.columns) return -1;
    const index = r * src.columns + c;
    return index < src.count ? index : -1;
  }
  function placeOf(index, src = source()) {
    if (src.ri) return [src.ri[index], src.ci[index]];
    return [src.r0 + Math.floor(index / src.columns), src.c0 + (index % src.columns)];
  }
  function worstEntry() {
    if (!base || !base.count) return null;
    if (tolerance === null && metric === "rel") return toPicture(meta().worst.index); // as the table has it
    const all = code.source === base ? code : codes(base, metric, tolerance);
    let best = 0;
    for (let i = 1; i < all.length; i++) if (all[i] > all[best]) best = i;
    return placeOf(best, base);
  }
  // Of complex entries, what shows the worst error: the sizes, unless only a phase is wrong.
  function tellingPart() {
    const worst = worstEntry();
    if (!meta().complex || !worst) return "abs";
    const i = find(worst, base);
    const [a, ai, n, ni] = ["a", "ai", "n", "ni"].map((plane) => base[plane][i]);
    const [re, im] = [Math.abs(a - n), Math.abs(ai - ni)];
    const seen = Math.abs(Math.hypot(a, ai) - Math.hypot(n, ni));
    if (!(seen < 0.1 * Math.hypot(re, im)) || classOf(code[i]) !== 2) return "abs";
    return re >= im ? "re" : "im";
  }
  function step(direction) {
    const all = code.source === base ? code : codes(base, metric, tolerance);
    const length = all.length;
    let at = selected ? find(selected, base) : -1;
    for (let k = 0; k < length; k++) {
      at = (at + direction + length) % length;
      if (classOf(all[at]) === 2) return pick(placeOf(at, base), true);
    }
    voice.textContent = "no wrong entry at this tolerance";
  }
  function pick(place, pin) {
    if (!place || root.classList.contains("busy")) return; // an entry of the block before
    selected = place;
    pinned = pin;
    hovered = null;
    const before = String(window_);
    for (const [k, at] of [[0, place[0]], [2, place[1]]]) {
      const length = window_[k + 1] - window_[k];
      const whole = k ? meta().columns : meta().rows;
      if (at < window_[k] || at >= window_[k + 1]) {
        window_[k] = clamp(Math.round(at - length / 2), 0, whole - length);
        window_[k + 1] = window_[k] + length;
      }
    }
    if (String(window_) === before) overlay();
    else draw();
    host.set("selected", pin ? toMatrix(place) : []);
    for (const call of listeners) call(pin ? toMatrix(place) : null);
    say();
  }
  const say = debounce(() => { voice.textContent = entry.dataset.words ?? ""; }, 250);

  // ---- drawing
  function measure() {
    const gap = 20, edge = 12;
    const across = width >= 560 ? 3 : width >= 400 ? 2 : 1;
    const space = Math.floor((width - gap * (across - 1) - edge) / across);
    const S = clamp(space, 150, 366);
    const { rows, columns } = meta();
    // as wide as the scale below it, unless a few columns would make bricks of cells
    const w = Math.min(S, Math.max(columns * 58, 40));
    const t = clamp((w * rows) / columns, Math.min(rows * 30, 0.36 * S), S);
    return { S, w: Math.round(w), t: Math.round(t) };
  }
  // The window in cells of the source: whole cells only, so that pixels map exactly.
  function grid(src) {
    const span = (from, to, start, n, length) => {
      const first = clamp(cellOf(from - start, n, length), 0, n - 1);
      const last = clamp(cellOf(to - 1 - start, n, length) + 1, first + 1, n);
      return [first, last, start + entryOf(first, n, length), start + entryOf(last, n, length)];
    };
    const [g0, g1, r0, r1] = span(window_[0], window_[1], src.r0, src.rows, src.r1 - src.r0);
    const [h0, h1, c0, c1] = span(window_[2], window_[3], src.c0, src.columns, src.c1 - src.c0);
    return { g0, g1, h0, h1, r0, r1, c0, c1 };
  }
  function draw() {
    if (!base) return;
    picture.classList.toggle("blank", !base.count);
    if (!base.count) return words();
    const src = source();
    if (code.source !== src) recode();
    const { S, w, t } = measure();
    const k = Math.max(1, window.devicePixelRatio || 1);
    const W = Math.round(w * k), T = Math.round(t * k);
    const g = grid(src);
    const down = Math.min(g.g1 - g.g0, T), across = Math.min(g.h1 - g.h0, W);
    const { index, worst } = pool(code, src.columns, src.count, g, down, across);
    const [low, high] = range();
    const colour = errorColour(ink, low, high, line());
    const largest = peak(base);
    const signed = valueColour(ink, largest);
    const values = { a: sideOf(src, "a"), n: sideOf(src, "n") };
    // a new tolerance leaves the values alone, unless other entries stand for their tiles
    const before = geometry;
    const fresh = before?.src !== src || before.W !== W || before.T !== T || before.ink !== ink || before.part !== part || !same(before.index, index);
    geometry = { S, w, t, k, W, T, ...g, down, across, index, worst, src, ink, part };
    for (const [key, plane] of fresh ? Object.entries(values) : []) {
      const cells = gather(plane, index);
      paint(panels[key].map, cells, down, across, W, T, signed, ink);
      blank(panels[key].map, index, down, across);
      cellText(panels[key].map, cells, [1, 0].map((more) => short(largest * meta().unit, more)), signed);
    }
    paint(E.map, worst, down, across, W, T, colour, ink);
    cellText(E.map, worst, [codeText], colour);
    edges(worst, down, across, colour);
    for (const p of Object.values(panels)) {
      for (const c of [p.map, p.over]) { c.style.width = `${w}px`; c.style.height = `${t}px`; }
      p.figure.style.width = `${p === E ? Math.max(S, w) + 12 : Math.max(S, w)}px`;
    }
    scales(S, k, largest, colour, low, high, fresh || before.S !== S);
    words();
    overlay();
    wantTile();
  }
  // What a panel shows of one side: of complex entries the size, or one of the parts.
  function sideOf(src, side) {
    if (!src.meta.complex || part === "re") return src[side];
    if (part === "im") return src[`${side}i`];
    return (src[`|${side}|`] ??= Float32Array.from(src[side], (x, i) => Math.hypot(x, src[`${side}i`][i])));
  }
  function peak(src) {
    const peaks = (src.peaks ??= {});
    if (peaks[part] === undefined) {
      let top = 0;
      for (const side of ["a", "n"]) for (const x of sideOf(src, side)) { const y = Math.abs(x); if (y > top && y < Infinity) top = y; }
      peaks[part] = top;
    }
    return peaks[part];
  }
  // Cells of a folded vector beyond its end belong to no entry.
  function blank(canvas, index, down, across) {
    const context = canvas.getContext("2d");
    const { W, T } = geometry;
    for (let q = index.length - 1; q >= 0 && index[q] < 0; q--) {
      const r = Math.floor(q / across), c = q % across;
      const x0 = Math.ceil((c * W) / across), y0 = Math.ceil((r * T) / down);
      context.clearRect(x0, y0, Math.ceil(((c + 1) * W) / across) - x0, Math.ceil(((r + 1) * T) / down) - y0);
    }
  }
  // Values of a panel have the same decimals, so that their sizes can be compared.
  const noNumber = () => (unsaid(meta(), findings) ? "none" : "NaN");
  const short = (largest, more) => {
    const decimals = clamp(1 + more - Math.floor(Math.log10(largest)), 0, 3);
    const plain = largest < 1e4 && largest >= 1e-2;
    return (value) => {
      const x = value * meta().unit;
      if (Number.isNaN(x)) return noNumber();
      if (!Number.isFinite(x) || x === 0 || !plain) return format(x, 1);
      const text = x.toFixed(decimals).replace("-", MINUS);
      return /[1-9]/.test(text) ? text : rough(x);
    };
  };
  const codeText = (c) => {
    if (c === -Infinity) return "";
    const log = c - CLASS_STEP * classOf(c);
    if (log > 850) return noNumber();
    if (log > 750) return "inf";
    if (log < -850) return "0";
    return log > -2 ? format(10 ** log, 2) : rough(10 ** log);
  };
  // Large cells get a gap and their number, so that colour is not the only carrier.
  function cellText(canvas, cells, forms, colour) {
    const { down, across, W, T, k } = geometry;
    const x = W / across, y = T / down;
    if (Math.min(x, y) < 9 * k) return;
    const context = cellGaps(canvas, down, across, k, root, ink);
    const roomy = x >= ROOMY[0] * k && y >= ROOMY[1] * k;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${Math.round((roomy ? 10.5 : 9) * k)}px ui-monospace, monospace`;
    // all numbers or none: some here and some there would look like a message
    const text = roomy && forms.find((form) => cells.every((c) => context.measureText(form(c)).width <= x - 3 * k));
    for (let q = 0; q < cells.length; q++) {
      const u = colour(cells[q]);
      if (u === VOID) continue;
      const log = cells[q] - CLASS_STEP * classOf(cells[q]);
      const odd = colour !== undefined && canvas === E.map ? (log > 750 ? (log > 850 ? "×" : "∞") : u === STRIPES ? "?" : "") : Number.isNaN(cells[q]) ? "×" : Number.isFinite(cells[q]) ? "" : "∞";
      const words = text ? text(cells[q]) : odd;
      if (!words) continue;
      const light = u === STRIPES ? !ink.dark : lightness(u) > 140;
      const at = [((q % across) + 0.5) * x, (Math.floor(q / across) + 0.55) * y];
      if (u === STRIPES) { // stripes would cross the words out
        const room = context.measureText(words).width + 6 * k;
        context.fillStyle = ink.stripes[0];
        context.fillRect(at[0] - room / 2, at[1] - 8 * k, room, 15 * k);
      }
      context.fillStyle = light ? "#111" : "#fff";
      context.fillText(words, ...at);
    }
  }
  // Worst of each row and column: a single bad entry shows although its cell is a dot.
  function edges(worst, down, across, colour) {
    const wide = meta().rows > 1 && meta().columns > 1;
    const { w, t, W, T, k } = geometry;
    const thick = 9;
    for (const c of [E.right, E.below]) c.style.display = wide ? "" : "none";
    if (!wide) return;
    const right = new Float32Array(down).fill(-Infinity), below = new Float32Array(across).fill(-Infinity);
    for (let q = 0; q < worst.length; q++) {
      const r = Math.floor(q / across), c = q % across;
      if (worst[q] > right[r]) right[r] = worst[q];
      if (worst[q] > below[c]) below[c] = worst[q];
    }
    paint(E.right, right, down, 1, Math.round(thick * k), T, colour, ink);
    paint(E.below, below, 1, across, W, Math.round(thick * k), colour, ink);
    Object.assign(E.right.style, { width: `${thick}px`, height: `${t}px` });
    Object.assign(E.below.style, { width: `${w}px`, height: `${thick}px` });
  }
  // The light layer: cross-hair, pin, rings. Runs at every movement of the pointer.
  function overlay() {
    const { W, T, k, r0, r1, c0, c1, worst, across, down } = geometry;
    const x = (c) => ((c + 0.5 - c0) / (c1 - c0)) * W, y = (r) => ((r + 0.5 - r0) / (r1 - r0)) * T;
    const at = hovered ?? selected;
    for (const p of Object.values(panels)) {
      p.over.width = W;
      p.over.height = T;
      const g = p.over.getContext("2d");
      g.lineWidth = k;
      if (p === E && Math.min(W / across, T / down) < 5 * k) rings(g, worst, across, down);
      if (at && (meta().rows > 1 || meta().columns > 8)) {
        g.strokeStyle = ink.cross;
        g.beginPath();
        if (meta().rows > 1) { g.moveTo(0, y(at[0])); g.lineTo(W, y(at[0])); }
        if (meta().columns > 1) { g.moveTo(x(at[1]), 0); g.lineTo(x(at[1]), T); }
        const x_ = W / across, y_ = T / down; // a line would strike out the numbers of cells
        if (Math.min(x_, y_) < 22 * k && !(x_ >= ROOMY[0] * k && y_ >= ROOMY[1] * k)) g.stroke();
      }
      for (const [place, wide] of [[selected, 2], [hovered, 1]]) {
        if (!place) continue;
        // on whole pixels, and inside the picture: half a line at its edge would be cut off
        const bw = Math.min(W, Math.max(W / (c1 - c0), 7 * k)), bh = Math.min(T, Math.max(T / (r1 - r0), 7 * k));
        const left = Math.round(clamp(x(place[1]) - bw / 2, 0, W - bw)), top = Math.round(clamp(y(place[0]) - bh / 2, 0, T - bh));
        for (const [i, thick, inset] of [[0, wide * k, (wide * k) / 2], [1, k, (wide + 0.5) * k]]) {
          g.lineWidth = thick;
          g.strokeStyle = ink.pin[i];
          g.strokeRect(left + inset, top + inset, Math.round(bw) - 2 * inset, Math.round(bh) - 2 * inset);
        }
      }
    }
    inspect();
  }
  function rings(g, worst, across, down) {
    const spots = [];
    for (let q = 0; q < worst.length; q++) {
      if (classOf(worst[q]) === 2 && spots.push(q) > 60) return; // too many to circle
    }
    g.lineWidth = 1.6 * geometry.k;
    g.strokeStyle = ink.ring;
    for (const q of spots) {
      g.beginPath();
      g.arc((((q % across) + 0.5) / across) * geometry.W, ((Math.floor(q / across) + 0.5) / down) * geometry.T, 7 * geometry.k, 0, 7);
      g.stroke();
    }
  }
  function scales(S, k, largest, colour, low, high, anew) {
    const mute = getComputedStyle(root).getPropertyValue("--mute");
    for (const key of anew ? ["a", "n"] : []) {
      const g = freshScale(panels[key].scale, S, k);
      const sizes_ = meta().complex && part === "abs"; // sizes are never below zero
      const first = sizes_ ? 256 : 0;
      for (let x = 0; x < S; x++) { g.fillStyle = css(ink.signedRamp[Math.round(first + (x / (S - 1)) * (512 - first))]); g.fillRect(x, 0, 2, 10); }
      g.fillStyle = mute;
      const top = format(largest * meta().unit, 2);
      for (const [text, align, x] of sizes_ ? [["0", "left", 0], [top, "right", S]] : largest ? [[MINUS + top, "left", 0], ["0", "center", S / 2], [`+${top}`, "right", S]] : [["0", "center", S / 2]]) { g.textAlign = align; g.fillText(text, x, 23); }
    }
    const at = line();
    errorScale(freshScale(E.scale, S, k), S, [low, high], at, colour, mute);
    slider.min = low;
    slider.max = high;
    slider.value = at;
    slider.style.width = `${S + 18}px`;
    slider.setAttribute("aria-valuetext", tolerance === null ? `as checked, ${format(10 ** at, 2)}` : format(10 ** at, 2));
    const sample = (background, text) => { const i = h("i"); i.style.background = background; return h("span", {}, i, text); };
    const stripes = `repeating-linear-gradient(135deg,${ink.stripes[0]} 0 2px,${ink.stripes[1]} 2px 4px)`;
    legend.replaceChildren(sample(stripes, "undecided"), sample(ink.equal, "equal"), sample(ink.nan, noNumber()), sample(ink.inf, "inf"));
  }

  // ---- words
  function words() {
    const m = meta();
    const src = base;
    const total = m.counts[0] + m.counts[1] + m.counts[2];
    const whole = m.shape[0] * m.input.shape.reduce((a, b) => a * b, 1);
    const sampled = base.cols && !base.support && m.coverage !== "probe" && total < whole;
    const [thing, things] = m.coverage === "probe" ? ["probe", "probes"] : ["entry", "entries"];
    let tally = m.counts, of = total, unit = sampled ? "entries looked at" : things;
    if (tolerance !== null) {
      tally = (code.source === src ? code : codes(src, metric, tolerance)).tally;
      if (m.grid) { of = src.count; unit = "tiles"; }
    }
    const kind = tolerance === null ? m.verdict : tally[2] ? 2 : tally[1] ? 1 : 0;
    const told = [];
    const beyond = tolerance === null ? (tally[2] === 1 ? "disagrees" : "disagree") : of === 1 ? "is beyond the tolerance" : "beyond the tolerance";
    if (tally[2]) told.push(of === 1 ? `the only ${thing} ${beyond}` : `${count(tally[2])} of ${count(of)} ${unit} ${beyond}`);
    if (tally[1]) told.push(`${count(tally[1])} undecided` + (tally[2] ? "" : `, ${count(tally[0])} agree`));
    const blind = m.verdict && (tolerance === null || !of); // whatever was looked at says nothing
    if (!tally[2] && !tally[1]) told.push(blind ? "not decided" : of ? (of === 1 ? `the only ${thing} agrees` : `${of === 2 ? "both" : `all ${count(of)}`} ${unit} agree`) : "no entries");
    const others = report.together?.[m.input.name]; // they have one number
    if (others) told.push(`moved together with ${others === 1 ? "another input" : `${others} others`}`);
    status.className = `status ${CLASSES[kind]}`;
    status.replaceChildren(verdictMark(kind, ""), named(m.name), " ", h("span", {}, told.flatMap((words_, i) => [i ? " · " : "", h("span", { class: "nowrap" }, words_)])));
    relative.setAttribute("aria-pressed", metric === "rel");
    absolute.setAttribute("aria-pressed", metric === "abs");
    tolText.replaceChildren("tolerance ", h("span", { class: "num" }, format(10 ** line(), 2)), tolerance === null ? h("span", { class: "mute" }, " · as checked") : "");
    tolReset.style.display = tolerance === null ? "none" : "";
    const some = `${count(total)}${sampled ? ` of ${count(whole)}` : ""} ${total === 1 ? thing : things}`;
    const matrix = m.rows === 1 || m.columns === 1 ? some
      : root.classList.contains("narrow") ? `${count(m.rows)} × ${count(m.columns)}`
        : `${count(m.rows)} outputs ↓ × ${count(m.columns)}${sampled ? ` of ${count(whole / m.rows)}` : ""} ${things} →`;
    const of_ = { matrix, input: `shape ${shapeWords(m.input.shape)}`, output: `shape ${shapeWords(m.output.shape)}`, fold: `${some}, in lines` }[m.kind];
    const zoomed = window_ && String(window_) !== String(everything()) ? `rows ${window_[0]}–${window_[1] - 1}, columns ${window_[2]}–${window_[3] - 1}` : null;
    panels.a.note.textContent = zoomed ?? of_;
    panels.n.note.textContent = m.method;
    const tiled = geometry && (geometry.g1 - geometry.g0 > geometry.down || geometry.h1 - geometry.h0 > geometry.across || geometry.src.ri);
    E.note.textContent = (m.complex ? "|a − n|, " : "") + (metric === "rel" ? "relative" : "absolute") + (tiled ? " · worst per tile" : "");
    partGroup.style.display = m.complex ? "" : "none";
    for (const [key, choice] of parts) choice.setAttribute("aria-pressed", String(key === part));
    const shown = (side) => (m.complex ? { abs: `|${side}|`, re: `Re ${side}`, im: `Im ${side}` }[part] : side);
    panels.a.caption.textContent = shown("analytic");
    panels.n.caption.textContent = shown("numeric");
    for (const [p, what] of [[panels.a, "Analytic Jacobian"], [panels.n, "Numeric Jacobian"], [E, "Error"]]) {
      p.map.setAttribute("aria-label", `${what} of ${m.name}, ${m.rows} by ${m.columns}${m.complex && p !== E ? `, ${{ abs: "sizes", re: "real parts", im: "imaginary parts" }[part]} of complex entries` : ""}. ${told.join("; ")}`);
    }
    list.update(m.key, tolerance, metric, ink);
  }
  function inspect() {
    const at = hovered ?? selected;
    const src = source();
    const index = at ? find(at, src) : -1;
    if (index < 0) { entry.replaceChildren(h("p", { class: "mute" }, "Point at a cell to read it; click to pin it.")); return; }
    const m = meta();
    const [i, j] = toMatrix(placeOf(index, src));
    const column = base.cols ? base.cols[j] : j;
    const wrt = m.coverage === "probe" ? `${m.input.name} along probe ${j}` : entryName(m.input, column, base.support);
    const out = entryName(m.output, i);
    const u = m.unit;
    const a = src.a[index] * u, n = src.n[index] * u, error = Math.abs(src.d[index]) * u, bar = src.e[index] * u;
    const [ai, ni] = m.complex ? [src.ai[index] * u, src.ni[index] * u] : [0, 0];
    const log = logErrors(src, "rel")[index];
    const rel = log > 850 ? NaN : log > 750 ? Infinity : log < -850 ? 0 : 10 ** log;
    // beside entries a hundred million times as large it is coloured by their size
    const beside = (size(src.a, src.ai, index) + size(src.n, src.ni, index)) * u;
    const floored = Number.isFinite(rel) && beside < src.meta.floor * u;
    const own = floored && beside > 0 ? error / beside : rel;
    const kind = classOf(code[index]);
    const none = unsaid(m, findings);
    const shown = (re, im) => (none && Number.isNaN(re) ? "none" : m.complex ? `${format(re, 5)} ${im < 0 ? MINUS : "+"} ${format(Math.abs(im), 5)}i` : format(re, 7));
    const ratio = m.complex ? Math.hypot(a, ai) / Math.hypot(n, ni) : a / n;
    const digits = own === 0 ? "all" : Number.isFinite(own) ? Math.max(0, -Math.log10(own)).toFixed(1) : "–";
    const reason = unread(src, m) ?? (Number.isFinite(error) ? why(kind, error, bar, rel) : oddity([a, ai], [n, ni]));
    const pairs = (...rows) => h("dl", { class: "pair" }, rows.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
    entry.replaceChildren(
      h("div", {}, h("h4", { class: wrt.length > 44 ? "small" : null, "aria-level": level(2) }, entryWords(wrt)), h("div", { class: CLASSES[kind] }, verdictMark(kind), h("span", { class: "mute" }, " · ", m.coverage === "full" && m.rows * m.columns === 1 ? "the only entry" : hovered ? "under the pointer" : pinned ? "pinned" : "the worst entry")),
        h("p", { class: "mute" }, entryWords(`∂${out} / ∂${wrt}`)), h("p", { class: "mute num" }, `J[${i}, ${m.coverage === "probe" ? j : column}]`)),
      h("div", {}, pairs(["analytic", shown(a, ai)], ["numeric", `${shown(n, ni)} ± ${format(bar, 2)}`]), numberLine(src, index), h("p", { class: "mute" }, reason)),
      h("div", {}, pairs(["absolute error", format(none ? null : error, 3)], ["relative error", format(none ? null : own, 3)], ...(floored && own > 0 ? [["beside the largest", format(rel, 3)]] : []), ["error bar", `± ${format(bar, 3)}`], [m.complex ? "|analytic| / |numeric|" : "analytic / numeric", Number.isFinite(ratio) ? format(ratio, 6) : "–"], ["digits that agree", digits])));
    entry.dataset.words = `${wrt}: ${WORDS[kind]}. analytic ${shown(a, ai)}, numeric ${shown(n, ni)} plus or minus ${format(bar, 2)}.`;
  }
  // An analytic side that is no number anywhere was not there to be read: why not.
  function unread(src, m) {
    src.unread ??= src.a.length > 0 && src.a.every(Number.isNaN);
    if (!src.unread) return null;
    const told = findings.find((f) => f.severity === "error" && f.places.includes(m.input.name));
    return told ? withCode(told.evidence) : null;
  }
  function oddity(...sides) {
    const [a, n] = sides.map((side) => side.every(Number.isFinite));
    if (a && n) return "the difference is not a finite number";
    return a || n ? `the ${a ? "numeric" : "analytic"} side is not a finite number` : "neither side is a finite number";
  }
  function why(kind, error, bar, rel) {
    if (error === 0) return `both sides are the same number${kind === 1 ? "; the numeric side is too blurred to tell" : ""}`;
    const times = bar > 0 ? error / bar : Infinity;
    const many = times === Infinity ? "the numeric side is exact" : times > 1e6 ? "the difference is millions of error bars" : times >= 1.05 ? `the difference is ${count(Number(times.toPrecision(2)))} error bars` : "the difference lies within the error bar";
    if (kind === 2) return `${many}: a step size cannot explain it`;
    if (kind === 1) return `${many}; the numeric side is too blurred to tell`;
    return rel < 1e-3 ? many + ": too small to matter" : many; // a bar may be wide: at a kink, say
  }
  // Numeric value with its error bar, and where the analytic value lies beside it.
  function numberLine(src, index) {
    const d = src.d[index], bar = src.e[index];
    if (!Number.isFinite(d) || !Number.isFinite(bar) || src.meta.complex) return null;
    const W = 262, mid = 22;
    const svg = s("svg", { width: W, height: 40, viewBox: `0 0 ${W} 40`, role: "img", "aria-label": "numeric value with error bar, and the analytic value" });
    const reach = Math.max(Math.abs(d) * 1.35, bar * 2.2) || 1;
    const x = (v) => W / 2 + (v / reach) * (W / 2 - 34);
    const centre = d / 2; // both marks stay in view
    const X = (v) => x(v - centre);
    const left = Math.max(4, X(-bar)), right = Math.min(W - 4, X(bar));
    svg.append(s("line", { x1: 2, x2: W - 2, y1: mid, y2: mid, class: "grid" }),
      s("rect", { x: left, y: mid - 6, width: Math.max(1, right - left), height: 12, rx: 2, fill: "var(--ok)", opacity: 0.28 }),
      s("line", { x1: X(0), x2: X(0), y1: mid - 8, y2: mid + 8, stroke: "var(--ok)", "stroke-width": 2 }),
      s("path", { d: `M${X(d)} ${mid - 7}l6 7-6 7-6-7Z`, fill: "var(--fg)" }));
    const apart = Math.abs(X(d) - X(0)) > 70;
    svg.append(s("text", { x: clamp(X(0), 24, W - 24), y: 39, "text-anchor": "middle", class: "mute" }, "numeric"),
      s("text", { x: clamp(X(d), 24, W - 24), y: apart ? 39 : 10, "text-anchor": "middle" }, "analytic"));
    return svg;
  }

  // ---- hands
  function placeAt(canvas, event) {
    const b = canvas.getBoundingClientRect();
    const { r0, r1, c0, c1, src, down, across, index } = geometry;
    const fy = clamp((event.clientY - b.top) / b.height, 0, 0.999999), fx = clamp((event.clientX - b.left) / b.width, 0, 0.999999);
    const q = index[Math.floor(fy * down) * across + Math.floor(fx * across)];
    return q >= 0 ? placeOf(q, src) : [Math.floor(r0 + fy * (r1 - r0)), Math.floor(c0 + fx * (c1 - c0))];
  }
  const exists = (place) => (find(place) >= 0 ? place : null);
  // Many cells under one pixel, or a ring around a dot: take the worst one nearby.
  function snap(place) {
    const { src, worst, index, down, across, k, W, T, r0, r1, c0, c1 } = geometry;
    if (Math.min(W / across, T / down) >= 5 * k) return exists(place);
    const pr = Math.floor(((place[0] + 0.5 - r0) / (r1 - r0)) * down), pc = Math.floor(((place[1] + 0.5 - c0) / (c1 - c0)) * across);
    const near = Math.ceil((4 * k * across) / W), tall = Math.ceil((4 * k * down) / T);
    let best = -1;
    for (let r = Math.max(0, pr - tall); r <= Math.min(down - 1, pr + tall); r++) {
      for (let c = Math.max(0, pc - near); c <= Math.min(across - 1, pc + near); c++) {
        const q = r * across + c;
        if (index[q] >= 0 && (best < 0 || worst[q] > worst[best])) best = q;
      }
    }
    const here = clamp(pr, 0, down - 1) * across + clamp(pc, 0, across - 1);
    if (best >= 0 && classOf(worst[best]) > classOf(worst[here])) return placeOf(index[best], src);
    return exists(place);
  }
  function zoom(factor, centre = selected ?? [meta().rows / 2, meta().columns / 2]) {
    const scaled = (low, high, whole, at) => {
      const length = clamp(Math.round((high - low) * factor), Math.min(whole, 4), whole);
      const share = clamp((at + 0.5 - low) / (high - low), 0, 1);
      const start = clamp(Math.round(at + 0.5 - share * length), 0, whole - length);
      return [start, start + length];
    };
    window_ = [...scaled(window_[0], window_[1], meta().rows, centre[0]), ...scaled(window_[2], window_[3], meta().columns, centre[1])];
    soon(true);
  }
  let frame = 0, whole = false;
  function soon(all) {
    whole ||= all;
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      const redraw = whole;
      whole = false;
      if (!base || !geometry) return;
      if (redraw) { recode(); draw(); } else overlay();
    });
  }
  for (const { map } of Object.values(panels)) {
    let drag = null;
    map.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, from: [...window_], moved: false };
      map.setPointerCapture(event.pointerId);
    });
    map.addEventListener("pointermove", (event) => {
      if (!geometry) return;
      if (!drag) { hovered = exists(placeAt(map, event)); soon(false); return; }
      if (Math.hypot(drag.x - event.clientX, drag.y - event.clientY) > 4) drag.moved = true;
      if (!drag.moved) return;
      const b = map.getBoundingClientRect();
      const move = (low, high, total, pixels, length) => {
        const start = clamp(low + Math.round((pixels / length) * (high - low)), 0, total - (high - low));
        return [start, start + high - low];
      };
      window_ = [...move(drag.from[0], drag.from[1], meta().rows, drag.y - event.clientY, b.height), ...move(drag.from[2], drag.from[3], meta().columns, drag.x - event.clientX, b.width)];
      soon(true);
    });
    map.addEventListener("pointerup", (event) => {
      const done = drag;
      drag = null;
      if (!done || done.moved) return;
      pick(snap(placeAt(map, event)), true);
      E.map.focus({ preventScroll: true });
    });
    map.addEventListener("pointercancel", () => { drag = null; });
    map.addEventListener("pointerleave", () => { hovered = null; soon(false); });
    map.addEventListener("wheel", (event) => {
      // Whoever scrolls past wants the page to move: the wheel zooms after a click, or
      // with Ctrl; and a small matrix has nothing to zoom into.
      const focused = root.getRootNode().activeElement === E.map;
      if ((!focused && !event.ctrlKey) || (meta().rows <= 8 && meta().columns <= 8)) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, placeAt(map, event));
    }, { passive: false });
    map.addEventListener("dblclick", () => { window_ = everything(); draw(); });
  }
  E.map.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const from = selected ?? [0, 0];
    if (by) {
      // in a reduced picture a step goes to the next tile
      const down = base.ri && source() === base ? meta().rows / base.rows : 1, across = base.ri && source() === base ? meta().columns / base.columns : 1;
      const to = [clamp(from[0] + Math.round(by[0] * down), 0, meta().rows - 1), clamp(from[1] + Math.round(by[1] * across), 0, meta().columns - 1)];
      const q = find(to);
      if (q >= 0) pick(source().ri ? placeOf(q) : to, true);
    } else if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else if (event.key === "w") pick(worstEntry(), true);
    else if (event.key === "+" || event.key === "=") zoom(0.7);
    else if (event.key === "-") zoom(1.4);
    else if (event.key === "0") { window_ = everything(); draw(); }
    else if (event.key === "Escape") pick(worstEntry(), false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  slider.addEventListener("input", () => setTolerance(10 ** +slider.value));

  // ---- what only a kernel can do
  const wantTile = debounce(() => {
    if (!host.live || !base?.ri || source() !== base) return;
    const [r0, r1, c0, c1] = window_;
    if ((r1 - r0) * (c1 - c0) > 260_000) return;
    // a little more than is seen, so that panning stays in the tile
    const pad = (low, high, total) => { const p = Math.ceil((high - low) / 4); return [Math.max(0, low - p), Math.min(total, high + p)]; };
    const [t0, t1] = pad(r0, r1, meta().rows), [l0, l1] = pad(c0, c1, meta().columns);
    const key = meta().key;
    host.ask({ type: "tile", key, window: [t0, t1, l0, l1] }, (answer, planes) => {
      if (!base || meta().key !== key || !planes) return;
      tile = decode(planes, meta(), { rows: t1 - t0, columns: l1 - l0, r0: t0, r1: t1, c0: l0, c1: l1 });
      draw();
    });
  }, 90);
  const listeners = [];
  if (host.live) liveControls(extra, host, meta, (call) => listeners.push(call));

  stops.push(
    host.on("param", load), host.on("block", load),
    host.on("page", () => {
      blocks = get("page").blocks;
      const fresh = blockList(blocks, (key) => choosePart(key), findings);
      const key = holder(list.element);
      list.element.replaceWith(fresh.element);
      list = fresh;
      load();
      hold(list.element, key);
    }),
    host.on("tol", () => { tolerance = get("tol") ?? null; soon(true); }),
    host.on("metric", () => { metric = get("metric"); soon(true); }),
    host.on("selected", () => { const wish = get("selected"); const place = wish?.length === 2 && base ? toPicture(wish) : null; if (place && String(place) !== String(selected)) { selected = place; pinned = true; soon(true); } }),
    onTheme(root, (dark) => { ink = inks(dark); root.classList.toggle("dark", dark); if (base && geometry) draw(); }),
    onWidth(root, (now) => { width = now; if (base && geometry) draw(); }));
  load();
  return () => { cancelAnimationFrame(frame); stops.forEach((stop) => stop?.()); };
}

// ================================================================= what a kernel adds

const METHODS = ["as checked", "central", "forward", "adaptive", "complex-step"];
const STEPLESS = { "as checked": "the steps are those of the check", adaptive: "adaptive chooses a step for every entry itself" };

// "Recompute here": the check of this one block again, with another method or step.
function recomputeBar(place, host, meta) {
  const method = h("select", { ...FOCUS, "aria-label": "Numeric method" }, METHODS.map((m) => h("option", { value: m }, m)));
  const step = h("input", { type: "text", ...FOCUS, "aria-label": "Step size", placeholder: "auto", size: "8" });
  const precision = h("select", { ...FOCUS, "aria-label": "Precision of the inputs" }, ["as given", "float32", "float64"].map((m) => h("option", { value: m === "as given" ? "" : m }, m)));
  const go = h("button", { type: "button", ...FOCUS }, "recompute here");
  const message = h("span", { class: "mute", role: "status" });
  const set = (words, control) => h("span", { class: "set" }, h("span", { class: "mute" }, words), control);
  place.append(h("div", { class: "bar" }, set("numeric side", method), set("step", step), set("precision", precision), go, message));
  // a method without a step says so before anybody types one; what was typed comes back
  let typed = "";
  const offer = () => {
    const why = STEPLESS[method.value];
    if (!step.disabled) typed = step.value;
    Object.assign(step, { disabled: Boolean(why), value: why ? "" : typed, placeholder: why ? "its own" : "auto", title: why ?? "in the units of the input; empty: the method chooses" });
  };
  method.addEventListener("change", offer);
  offer();
  const ask = () => {
    if (paused(go)) return;
    const h_ = step.value.trim() === "" ? null : Number(step.value);
    if (h_ !== null && !(h_ > 0 && h_ < Infinity)) { message.textContent = "the step must be a number above 0"; message.className = "message"; return; }
    pause([go], true);
    message.className = "mute";
    message.textContent = "computing …";
    host.ask({ type: "recompute", key: meta().key, method: method.value, step: h_, dtype: precision.value }, (answer) => {
      pause([go], false);
      message.className = answer.error ? "message" : "mute";
      message.textContent = answer.error ?? answer.words;
    });
  };
  go.addEventListener("click", ask);
  step.addEventListener("keydown", (event) => { if (event.key === "Enter") ask(); });
}

// A small plot of one entry: its own error against the step.
function entryPlot(place, answer) {
  if (answer.error) { place.replaceChildren(h("p", { class: "message" }, answer.error)); return; }
  const W = 360, H = 150, left = 46, right = 10, top = 10, bottom = 30;
  const errors = answer.errors.map(number), steps = answer.steps;
  if (!errors.some(Number.isFinite)) {
    place.replaceChildren(h("p", { class: "mute" }, `${answer.label} has no error to draw by step size: a side is not a finite number`));
    return;
  }
  const y = axis(errors, H - bottom, top), [x0, x1] = span([Math.min(...steps), Math.max(...steps)]);
  const X = (v) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (W - left - right);
  const svg = s("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Error of ${answer.label} against the step size` });
  frame(svg, X, y, x0, x1, left, W - right, top, H - bottom);
  svg.append(s("path", { d: trace(steps, errors, X, y.at), fill: "none", stroke: "var(--accent)", "stroke-width": 1.8 }),
    s("text", { x: W - right, y: H - 2, "text-anchor": "end", class: "mute" }, "step size h →"));
  place.replaceChildren(h("div", { class: "cap" }, h("b", {}, "relative error by step size"), h("span", {}, answer.label)), svg);
}

function liveControls(place, host, meta, onEntry) {
  const plot = h("figure", { class: "entryplot" });
  if (host.get("can_recompute")) recomputeBar(place, host, meta);
  place.append(plot);
  const ask = debounce((index) => {
    host.ask({ type: "entry", key: meta().key, index }, (answer) => entryPlot(plot, answer));
  }, 150);
  onEntry((index) => { if (host.get("can_recompute") && index) ask(index); else plot.replaceChildren(); });
}

// ----------------------------------------------------------------------- log-log axes

function axis(values, bottom, top, room = 0) {
  const logs = values.filter((v) => Number.isFinite(v) && v > 0).map(Math.log10);
  const low = clamp(Math.floor((Math.min(-2, ...logs) - room) / 2) * 2, -20, 0);
  const high = clamp(Math.ceil((Math.max(-1, ...logs) + 0.3) / 2) * 2, low + 4, 12);
  const raw = (log) => bottom - ((log - low) / (high - low)) * (bottom - top);
  return { low, high, raw, at: (v) => raw(v > 0 ? clamp(Math.log10(v), low, high) : low) };
}
// Ends of the axis of ascending steps, in decades; one step alone stands in the middle.
function span(steps) {
  const [x0, x1] = [steps[0], steps.at(-1)].map(Math.log10), room = x0 === x1 ? 0.3 : 0;
  return [x0 - room, x1 + room];
}
function frame(svg, X, y, x0, x1, left, right, top, bottom, below = 15) {
  const decade = X(10) - X(1), word = { y: bottom + below, "text-anchor": "middle", class: "mute" };
  const every = [1, 2, 4, 8].find((n) => n * decade > 52 && (x1 - x0) / n < 9) ?? 16;
  const marks = [];
  for (let v = Math.ceil(x0 - 1e-9); v <= x1 + 1e-9; v++) {
    if (v % every && decade < 14) continue;
    svg.append(s("line", { class: "grid", x1: X(10 ** v), x2: X(10 ** v), y1: top, y2: bottom, opacity: v % every ? 0.5 : 1 }));
    if (v % every === 0) marks.push([X(10 ** v), `10${superscript(v)}`]);
  }
  // a ladder of a decade or two has its ends named, where no power of ten stands close by
  const ends = marks.length > 1 ? [] : [x0, x1].map((v) => [X(10 ** v), format(10 ** v, 2)]);
  marks.push(...ends.filter(([x]) => marks.every(([other]) => Math.abs(x - other) > 52)));
  for (const [x, text] of marks) svg.append(s("text", { x, ...word }, text));
  for (let v = y.low; v <= y.high; v += 2) {
    svg.append(s("line", { class: "grid", x1: left, x2: right, y1: y.raw(v), y2: y.raw(v) }));
    if (v % 4 === 0 || y.high - y.low <= 10) svg.append(s("text", { x: left - 7, y: y.raw(v) + 4, "text-anchor": "end", class: "mute" }, `10${superscript(v)}`));
  }
}
function trace(steps, errors, X, Y) {
  let path = "", pen = false;
  steps.forEach((step, i) => {
    if (!Number.isFinite(errors[i])) { pen = false; return; }
    path += `${pen ? "L" : "M"}${X(step).toFixed(1)} ${Y(errors[i]).toFixed(1)}`;
    pen = true;
  });
  return path;
}

// ======================================================================= EpsilonSweep
// Colour says the verdict, never which input: a network has more inputs than there are
// colours that everybody can tell apart. The label at the end of a line says which.

const MENU = ["forward", "central", "adaptive", "complex-step"];
const NONE = ": no curve";
const LINES = [{ width: 1.3, dash: null }, { width: 1.8, dash: "6 3" }, { width: 2.8, dash: null }];

export function mountSweep(element, host) {
  const root = shell(element, "Step-size sweep");
  const stops = [];
  let data, method, at, hot = null, picked = null, width = 900, ink = inks(false), slices = null, awaited = false, prefix = "", ruler = null, lens = null, over = null;
  const bar = h("div", { class: "bar" });
  const words = h("div", { role: "status", "aria-live": "polite" });
  const plot = h("div", { style: "flex:1 1 420px;min-width:0;touch-action:pan-y" });
  const map = h("canvas", { class: "map", role: "img" });
  const mapScale = h("canvas", { "aria-hidden": "true", style: "margin-top:7px" });
  const mapTitle = h("figcaption", { class: "cap" });
  const mapNote = h("p", { class: "keys" });
  const heat = h("figure", { style: "flex:0 0 auto" }, mapTitle, map, mapScale, mapNote);
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Inputs" });
  const message = h("p", { class: "message", role: "status" });
  const below = h("div", {});
  const head = h("div", {}), foot = h("div", {});
  const toDrag = h("span", {}, "drag the line or click the plot to read at a step · ", h("kbd", {}, "←"), h("kbd", {}, "→"), " move it · ");
  root.append(head, bar, h("div", { style: "display:flex;flex-wrap:wrap;gap:14px 18px;align-items:flex-start" }, plot, heat), chips, words,
    h("p", { class: "keys hint" }, toDrag, "point at a name to single it out"), message, foot, below);

  const curve = (input) => data.curves[method][input];
  const worst = () => new Set(data.loud[method]); // of a crowd the few that are drawn in full
  const drawn = (input) => curve(input).some(Number.isFinite); // a gradient that is no number has no error
  const ladder = () => method !== "adaptive"; // it chooses a step for every entry itself
  // The cursor stands on measured steps only: between them nobody looked.
  const nearest = (step) => data.steps.reduce((best, v) => (Math.abs(Math.log(v / step)) < Math.abs(Math.log(best / step)) ? v : best), data.steps[0]);
  const near = () => data.steps.indexOf(at);
  // A best step lies between two rungs: of these the one that is better for the chosen input.
  function least(step) {
    const k = data.steps.indexOf(nearest(step)), beside = k + (data.steps[k] < step ? 1 : -1);
    return curve(picked)[beside] < curve(picked)[k] ? beside : k;
  }
  // Of a curve that was cut short, which has no best step: the best of those measured.
  function lowest() {
    const errors = curve(picked), known = errors.filter(Number.isFinite);
    return known.length ? errors.indexOf(Math.min(...known)) : data.steps.length >> 1;
  }
  const tell = debounce(() => host.set("h", at), 120);
  function move(step) {
    const rung = nearest(step);
    if (rung === at) return;
    at = rung;
    draw();
    tell();
  }
  function load() {
    if (data && data.dtype !== host.get("page").dtype) clearNested(below); // of the other precision
    data = host.get("page");
    data.steps = data.steps.map(number);
    for (const name of data.methods) data.curves[name] = data.curves[name].map((line) => line.map(number));
    method = data.methods.includes(host.get("method")) ? host.get("method") : data.methods[0];
    const wish = data.inputs.findIndex((input) => input.name === host.get("picked"));
    picked ??= wish >= 0 ? wish : data.loud[method]?.[0] ?? 0;
    const found = (data.best[method] ?? []).map(number), last = data.steps.at(-1);
    // without truncation the longest step is the best there is, and the worst for the others
    const inner = found.filter((step) => step > 0 && step < last).sort((a, b) => a - b);
    const own = found[picked] >= last && inner.length ? inner[(inner.length - 1) >> 1] : found[picked];
    at = host.get("h") ? nearest(host.get("h")) : own > 0 ? data.steps[least(own)] : data.steps[lowest()];
    head.replaceChildren(reportHead(data));
    foot.replaceChildren(reportFoot(data));
    prefix = commonPrefix(data.inputs.map((input) => input.name), 18);
    const choice = (label, words_, pressed, act, more) => h("button", { type: "button", ...FOCUS, "data-key": words_, "aria-pressed": String(pressed), title: label, onclick: (event) => paused(event.target) || act(event), class: more ? "more" : null }, words_);
    const methods_ = MENU.filter((name) => data.methods.includes(name) || (host.live && (data.more ?? []).includes(name)));
    methods_.push(...data.methods.filter((name) => !MENU.includes(name)));
    refill(bar, [
      methods_.length > 1 && h("span", { class: "set" }, h("span", { class: "mute" }, "method"), h("span", { class: "group", role: "group", "aria-label": "Numeric method" },
        methods_.map((name) => (data.methods.includes(name)
          ? choice(`errors of ${name.replace("-", " ")}`, name.replace("-", " "), name === method, () => { host.set("method", name); method = name; load(); })
          : choice("not measured yet: measure it", name.replace("-", " "), false, (event) => compute({ type: "method", method: name }, event.target), true))))),
      (data.dtypes ?? []).length > 1 && h("span", { class: "set" }, h("span", { class: "mute" }, "precision"), h("span", { class: "group", role: "group", "aria-label": "Precision of the inputs" },
        data.dtypes.map((name) => choice(`inputs in ${name}`, name, name === data.dtype, (event) => { if (name !== data.dtype) compute({ type: "dtype", dtype: name }, event.target); })))),
    ].filter(Boolean));
    fetchSlices();
    draw();
  }
  // Measures in the kernel; the page comes back as a trait.
  function compute(question, button) {
    pause(bar.querySelectorAll("button"), true);
    message.className = "mute";
    message.textContent = `measuring ${button.textContent} …`;
    host.ask(question, (answer) => {
      pause(bar.querySelectorAll("button"), false);
      message.className = "message";
      message.textContent = answer.error ?? "";
    });
  }
  function fetchSlices() {
    slices = null;
    // of a single entry the curve has told all
    const found = (data.matrices ?? []).find((m) => m.method === method && m.input === picked && m.rows * m.columns > 1);
    awaited = Boolean(found); // its place is kept while the numbers are on their way
    heat.classList.toggle("waits", awaited);
    heat.setAttribute("aria-busy", String(awaited));
    if (found) host.load(found, (raw) => { if (!raw) return; slices = { ...found, logs: view(raw.s, Float32Array) }; heat.classList.remove("waits"); heat.setAttribute("aria-busy", "false"); draw(); });
  }

  function draw() {
    const narrow = width < 760;
    const beside = awaited && width > 820;
    const W = Math.max(240, width - (beside ? 300 : 0)), H = narrow ? 346 : 396;
    // a plot as wide as the page leaves no room beside it: the map goes below
    plot.style.flexBasis = beside ? "420px" : "100%";
    const longest = Math.max(0, ...data.inputs.map((input, i) => input.name.length - prefix.length + (prefix ? 1 : 0) + (drawn(i) ? 0 : NONE.length)));
    const m = { l: 50, r: Math.min(longest * 7 + 52, Math.max(110, 0.3 * W)), t: 18, b: 62 };
    const [x0, x1] = span(data.steps);
    const X = (v) => m.l + ((Math.log10(v) - x0) / (x1 - x0)) * (W - m.l - m.r);
    const y = axis(data.curves[method].flat(), H - m.b, m.t, 3);
    const svg = s("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": `Relative error against step size, ${method}, log-log` });
    frame(svg, X, y, x0, x1, m.l, W - m.r, m.t, H - m.b, 21); // below the handle of the cursor
    svg.append(s("text", { x: m.l, y: H - 8, class: "mute" }, "step size h →"), s("text", { transform: `translate(11 ${(m.t + H - m.b) / 2}) rotate(-90)`, "text-anchor": "middle", class: "mute" }, "worst relative error"));
    const { named, over } = theory(svg, y, X, x0, x1, m, W, H);
    const ends = lines(svg, X, y, W - m.r);
    svg.append(over); // names of lines stand before the curves, on paper of their own
    if (ladder()) best(svg, X, m, H, y, W - m.r, named);
    labels(svg, ends, W - m.r, m.t, H - m.b, m.r);
    if (ladder()) cursor(svg, X, x0, x1, m, W, H, y);
    toDrag.style.display = ladder() ? "" : "none"; // adaptive steps have no line to drag
    lens = { W, X, y };
    ruler = ladder() ? { W, left: m.l, span: W - m.l - m.r, x0, x1 } : null;
    refill(plot, [svg]);
    sentence();
    chipRow();
    heatmap();
  }
  // Truncation C h^p and rounding u/h, as quiet lines with their name along them; tells
  // where the names stand.
  function theory(svg, y, X, x0, x1, m, W, H) {
    const clip = `gl${Math.random().toString(36).slice(2)}`;
    svg.append(s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: m.l, y: m.t, width: W - m.l - m.r, height: H - m.t - m.b }))));
    const group = s("g", { "clip-path": `url(#${clip})` }), over = s("g", { "clip-path": `url(#${clip})`, class: "over" });
    const branches = data.theory[method] ?? [];
    const [[, p, c], [, q, d]] = branches.length === 2 ? branches : [[], []];
    const valley = (number(d) - number(c)) / (p - q); // log of the step where they meet
    const foot = X(number(data.best[method]?.[picked] ?? NaN)); // a line stands there
    const named = [];
    for (const [words_, exponent, coefficient] of branches) {
      const log = (v) => number(coefficient) + exponent * v;
      const a = [X(10 ** x0), y.raw(log(x0))], b = [X(10 ** x1), y.raw(log(x1))];
      // a short tail, from the valley to the foot of the plot, has room for "~ h²" only
      const rise = H - m.b - y.raw(log(valley)), tail = Math.abs(rise) * Math.hypot(1, (b[0] - a[0]) / (b[1] - a[1]));
      const label = W < 560 || tail < 6.2 * words_.length + 50 ? words_.replace(/^\w+ /, "") : words_;
      group.append(s("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], stroke: "var(--mute)", "stroke-width": 1, "stroke-dasharray": "2 4" }));
      // the name stands on the tail of the line below the valley, where nothing else is,
      // with room for half of its length on either side
      const angle = Math.atan2(b[1] - a[1], b[0] - a[0]), half = 3.1 * label.length + 6;
      const inset = { x: Math.abs(Math.cos(angle)) * half, y: Math.abs(Math.sin(angle)) * half + 8 };
      const tall = H - m.b - m.t, top = m.t + inset.y, bottom = H - m.b - inset.y;
      const left = m.l + inset.x, right = W - m.r - inset.x;
      if (tall < 2 * inset.y || !exponent) continue;
      const onLine = (py) => a[0] + ((py - a[1]) / (b[1] - a[1])) * (b[0] - a[0]);
      let py = bottom, px = onLine(py);
      if (px < left || px > right) { px = clamp(px, left, right); py = a[1] + ((px - a[0]) / (b[0] - a[0])) * (b[1] - a[1]); }
      // where the tail is too short for it, it goes up the line instead, into the valley
      if (Math.abs(px - foot) < inset.x + 9) { px = foot + Math.sign(exponent) * (inset.x + 12); py = a[1] + ((px - a[0]) / (b[0] - a[0])) * (b[1] - a[1]); }
      if (py < top || py > bottom + 1 || px < left || px > right) continue;
      named.push([px, py]);
      over.append(s("text", { class: "mute", transform: `translate(${px} ${py}) rotate(${(angle * 180) / Math.PI}) translate(0 -6)`, "text-anchor": "middle" }, label));
    }
    svg.append(group);
    return { named, over };
  }
  function best(svg, X, m, H, y, right, named) {
    const floor = number(data.floor[method]?.[picked] ?? NaN);
    if (floor >= 0 && Math.log10(floor) < y.low) { // a line at the edge would be a wrong level
      const low = named.filter(([, py]) => py > H - m.b - 40), corners = [low.some(([px]) => px < m.l + 135), low.some(([px]) => px > right - 135)];
      // where names stand in both corners, it goes below the plot, beside what its axis is
      const y_ = corners[0] && corners[1] ? H - 8 : H - m.b - 5;
      const corner = corners[0] ? { x: right - 5, "text-anchor": "end" } : { x: m.l + 5 };
      svg.append(s("text", { ...corner, y: y_, class: "mute" }, `↓ floor ≈ ${format(floor, 2)}`));
    } else if (floor > 0) {
      const level = y.at(floor), above = named.some(([px, py]) => px < m.l + 160 && Math.abs(py - level) < 24);
      svg.append(s("line", { x1: m.l, x2: right, y1: level, y2: level, stroke: "var(--ok)", "stroke-width": 1, "stroke-dasharray": "1 3" }),
        s("text", { x: m.l + 5, y: level + (above ? 12 : -4), class: "mute over" }, `floor ≈ ${format(floor, 2)}`));
    }
    const value = number(data.best[method]?.[picked] ?? NaN);
    if (!(value > 0) || floor === 0) return; // of equal steps none is best
    svg.append(s("line", { x1: X(value), x2: X(value), y1: m.t, y2: H - m.b, stroke: "var(--ok)", "stroke-width": 1, "stroke-dasharray": "1 3" }),
      s("text", { x: Math.max(X(value), m.l + 44), y: m.t - 5, class: "mute", "text-anchor": "middle" }, `best h ≈ ${format(value, 2)}`));
  }
  const tone = (verdict) => `var(--${CLASSES[verdict]})`;
  function lines(svg, X, y, right) {
    const loud = worst(), crowd = loud.size < data.inputs.length, on = (i) => hot === i || picked === i, full = (i) => loud.has(i) || on(i);
    const order = data.inputs.map((input, i) => ({ input, i })).sort((a, b) => a.input.verdict - b.input.verdict || full(a.i) - full(b.i) || (a.i === picked) - (b.i === picked));
    const many = data.inputs.filter((i) => i.verdict === 0).length > 3;
    const ends = [];
    for (const { input, i } of order) {
      const errors = curve(i), style = LINES[input.verdict], quiet = !full(i);
      const faint = hot !== null && hot !== i;
      const own = ladder() ? null : data.adaptive[i];
      const d = trace(data.steps, errors, X, y.at);
      const group = s("g", { class: "curve", opacity: faint ? (quiet ? 0.12 : 0.2) : quiet ? 0.35 : input.verdict === 0 && !on(i) ? 0.7 : 1, "data-name": input.name, "data-quiet": quiet });
      group.append(s("path", { d, fill: "none", stroke: quiet && !input.verdict ? "var(--mute)" : tone(input.verdict), "stroke-width": quiet ? 1 : style.width + (on(i) ? 0.9 : 0), "stroke-dasharray": style.dash, "stroke-linejoin": "round" }));
      if (own && Number.isFinite(errors[0])) spread(group, own, X, y.at(errors[0]), input.verdict);
      const k = near();
      if (!own && !quiet && Number.isFinite(errors[k])) group.append(dot(input.verdict, X(data.steps[k]), y.at(errors[k])));
      svg.append(group);
      const last = errors.findLastIndex((v) => Number.isFinite(v));
      if (quiet || (input.verdict === 0 && !on(i) && many && !crowd)) continue;
      if (last >= 0) ends.push({ i, input, from: [X(data.steps[last]), y.at(errors[last])], y: y.at(errors[last]), faint, early: last < errors.length - 1 });
      else ends.push({ i, input, from: null, y: y.raw(y.high) + 10, faint }); // its name says so
    }
    return ends;
  }
  // Adaptive steps: a level, and on it the steps that its entries were given.
  function spread(group, { low, high, typical }, X, y, verdict) {
    const [a, b, c] = [low, high, typical].map((step) => X(clamp(number(step), data.steps[0], data.steps.at(-1))));
    if (![a, b, c].every(Number.isFinite)) return;
    group.append(s("line", { x1: a, x2: b, y1: y, y2: y, stroke: tone(verdict), "stroke-width": 5, "stroke-linecap": "round", opacity: 0.45 }), dot(verdict, c, y));
  }
  function dot(verdict, x, y) {
    const fill = tone(verdict), stroke = "var(--ground,var(--paper))";
    if (verdict === 0) return s("circle", { cx: x, cy: y, r: 3.6, fill, stroke });
    if (verdict === 1) return s("rect", { x: x - 3.6, y: y - 3.6, width: 7.2, height: 7.2, fill, stroke });
    return s("path", { d: `M${x} ${y - 5.5}l5.5 5.5-5.5 5.5-5.5-5.5Z`, fill, stroke });
  }
  // A name in so many letters: its beginning and, more telling, its end.
  function squeezed(name, most, before = "") {
    most = Math.max(8, most - before.length);
    return before + (name.length <= most ? name : `${name.slice(0, Math.floor(most / 3))}…${name.slice(1 + Math.floor(most / 3) - most)}`);
  }
  function labels(svg, ends, x, top, bottom, room_) {
    ends.sort((a, b) => a.y - b.y);
    const room = Math.floor((bottom - top) / 15) - 3; // lines are kept for the others
    const shown = ends.length > room ? ends.filter((e) => e.input.verdict > 0).slice(0, room) : ends;
    for (let k = 1; k < shown.length; k++) shown[k].y = Math.max(shown[k].y, shown[k - 1].y + 15);
    const others = [2, 1, 0].map((verdict) => [verdict, data.inputs.filter((input, i) => input.verdict === verdict && !shown.some((end) => end.i === i)).length]).filter(([, n]) => n);
    const lowest = bottom - 15 * others.length;
    const over = shown.length ? shown[shown.length - 1].y - lowest : 0;
    if (over > 0) for (let k = shown.length - 1, limit = lowest; k >= 0; k--, limit -= 15) shown[k].y = Math.min(shown[k].y, limit);
    for (const end of shown) {
      const none = end.from ? "" : NONE;
      const text = squeezed(end.input.name.slice(prefix.length), Math.floor((room_ - 40) / 6.8) - none.length, prefix ? "…" : "") + none;
      svg.append(end.from ? s("path", { d: `M${end.from[0]} ${end.from[1]}L${x + 5} ${end.from[1]}L${x + 14} ${end.y}h4`, fill: "none", stroke: tone(end.input.verdict), "stroke-dasharray": end.early ? "1 5" : null, opacity: end.faint ? 0.2 : 0.7 }) : "",
        s("text", { x: x + 21, y: end.y + 4, "data-end": end.input.name, style: `fill:${tone(end.input.verdict)};font-weight:${end.input.verdict === 2 ? 700 : 400}`, opacity: end.faint ? 0.35 : 1 },
          s("title", {}, end.input.name), `${GLYPHS[end.input.verdict]} ${text}`));
    }
    others.forEach(([verdict, n], k) => svg.append(s("text", { x: x + 21, y: (shown.at(-1)?.y ?? lowest) + 19 + 15 * k, ...(verdict ? { style: `fill:${tone(verdict)}` } : { class: "mute" }) },
      `${GLYPHS[verdict]} ${count(n)} ${shown.length ? "other" : "input"}${n > 1 ? "s" : ""}`)));
  }
  function cursor(svg, X, x0, x1, m, W, H) {
    const x = X(at), base = H - m.b;
    const handle = s("g", { ...FOCUS, class: "cursor", "data-key": "h", role: "slider", "aria-label": "step size h", "aria-valuemin": x0, "aria-valuemax": x1, "aria-valuenow": Math.log10(at), "aria-valuetext": format(at, 2), style: "cursor:ew-resize" },
      s("rect", { x: x - 9, y: m.t, width: 18, height: base - m.t + 10, fill: "transparent" }),
      s("line", { x1: x, x2: x, y1: m.t, y2: base, stroke: "var(--accent)", "stroke-width": 1.6 }),
      s("rect", { x: x - 6, y: base - 8, width: 12, height: 16, rx: 4, fill: "var(--accent)", stroke: "var(--ground,var(--paper))" }),
      s("text", { x: clamp(x, m.l + 20, W - m.r - 20), y: base + 38, "text-anchor": "middle", style: "fill:var(--accent);font-weight:600" }, `h = ${format(at, 2)}`));
    handle.addEventListener("keydown", (event) => {
      const last = data.steps.length - 1;
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -4, PageUp: 4, Home: -last, End: last }[event.key];
      if (by === undefined) return;
      move(data.steps[clamp(near() + by, 0, last)]);
      event.preventDefault();
      event.stopPropagation();
    });
    svg.append(handle);
  }
  // The plot itself takes the pointer, since all that is in it is drawn anew at each step.
  const share = (event) => {
    const box = plot.firstChild.getBoundingClientRect();
    return ((event.clientX - box.left) * (ruler.W / box.width) - ruler.left) / ruler.span;
  };
  const read = (event) => move(10 ** (ruler.x0 + clamp(share(event), 0, 1) * (ruler.x1 - ruler.x0)));
  plot.addEventListener("pointerdown", (event) => {
    if (!ruler || event.button > 0 || share(event) > 1 + 10 / ruler.span) return;
    plot.setPointerCapture(event.pointerId);
    read(event);
    hold(plot, "h");
    event.preventDefault();
  });
  plot.addEventListener("pointermove", (event) => {
    if (ruler && plot.hasPointerCapture(event.pointerId)) { read(event); return; }
    single(under(event));
  });
  plot.addEventListener("pointerleave", () => single(null));
  const single = (i) => { if (hot !== i) { hot = i; draw(); } };
  // Of many curves that cross, the one that is nearest below or above the pointer.
  function under(event) {
    const box = plot.firstChild.getBoundingClientRect(), scale = lens.W / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const named = data.inputs.findIndex((input) => input.name === event.target.closest?.("[data-end]")?.dataset.end);
    if (named >= 0) return named;
    const places = data.steps.map(lens.X), k = clamp(places.findIndex((place) => place > x), 1, places.length - 1);
    const t = (x - places[k - 1]) / (places[k] - places[k - 1] || 1);
    if (t < 0 || t > 1) return null;
    let best = null, least = 9;
    data.inputs.forEach((_, i) => {
      const [a, b] = [curve(i)[k - 1], curve(i)[k]];
      const [ya, yb] = [lens.y.at(a), lens.y.at(b)], slant = Math.hypot(1, (yb - ya) / (places[k] - places[k - 1] || 1));
      const away = Number.isFinite(a) && Number.isFinite(b) ? Math.abs(ya + t * (yb - ya) - y) / slant : Infinity;
      if (away < least) { least = away; best = i; }
    });
    return best;
  }
  function sentence() {
    const chosen = data.inputs[hot ?? picked];
    if (!chosen) { words.replaceChildren(); return; }
    words.replaceChildren(h("div", { class: `finding ${CLASSES[chosen.verdict]}`, style: "margin:4px 0 6px" },
      verdictMark(chosen.verdict), " ", h("span", { class: "where" }, breakable(chosen.name)), " — ", withCode(chosen.reading[method] ?? `${data.methods[0]}: ${chosen.reading[data.methods[0]]}`),
      !ladder() && h("span", { class: "advice" }, `adaptive chose steps from ${format(number(data.adaptive[hot ?? picked].low), 2)} to ${format(number(data.adaptive[hot ?? picked].high), 2)} for its entries; its worst relative error is ${format(curve(hot ?? picked)[0], 2)}`)));
  }
  function chipRow() {
    const k = near(), loud = worst();
    const rows = data.inputs.map((input, i) => ({ input, i }));
    const shown = rows.filter(({ i }) => loud.has(i) || i === picked), rest = rows.filter((row) => !shown.includes(row));
    const choose = ({ input, i }, key) => { picked = i; host.set("picked", input.name); fetchSlices(); draw(); open(input); hold(chips, key); };
    const tally = [2, 1, 0].map((verdict) => [verdict, rest.filter(({ input }) => input.verdict === verdict).length]).filter(([, n]) => n);
    refill(chips, [...shown.map((row) => h("button", { type: "button", class: `chip ${CLASSES[row.input.verdict]}`, ...FOCUS, "data-key": String(row.i), "aria-pressed": String(row.i === picked), title: row.input.name,
      onclick: () => choose(row, String(row.i)) },
      h("i", { "aria-label": WORDS[row.input.verdict] }, GLYPHS[row.input.verdict]), named(row.input.name, { prefix }), h("span", { class: "num" }, format(curve(row.i)[k], 2)))),
      ...(rest.length ? [h("select", { ...FOCUS, "data-key": "others", "aria-label": "Another input", style: "max-width:min(100%,250px)", onchange: (event) => choose(rows[Number(event.target.value)], "others") },
        h("option", { value: "", disabled: true, selected: loud.has(picked) }, tally.map(([verdict, n]) => `${GLYPHS[verdict]} ${count(n)} more`).join(" · ")),
        rows.filter(({ i }) => !loud.has(i)).map(({ input, i }) => h("option", { value: String(i), selected: i === picked }, `${GLYPHS[input.verdict]} ${input.name}`)))] : [])]);
  }
  // Up to which error a cell is quiet, and the rung whose errors are: the tolerance, or, of
  // a right input, the noise at its best step.
  function explained() {
    const step = number(data.best[method]?.[picked] ?? NaN), tolerance = data.tolerance ?? 1e-6;
    const nothing = number(data.floor[method]?.[picked] ?? NaN) > 0 && !(step > 0); // no step gives a digit
    if (!ladder() || data.inputs[picked].verdict > 0 || nothing) return [tolerance, -1];
    const rung = step > 0 ? least(step) : lowest();
    return [Math.max(tolerance, number(data.floor[method][picked]) || 0, curve(picked)[rung] || 0), rung];
  }
  // The heat map follows the cursor: from truncation over clean to noise.
  function heatmap() {
    heat.style.display = awaited ? "" : "none";
    if (!slices) return;
    const { rows, columns, logs } = slices, k = ladder() ? near() : 0, total = rows * columns;
    const [quiet, rung] = explained(), line = Math.log10(quiet);
    const codes_ = new Float32Array(total);
    for (let q = 0; q < total; q++) {
      const log = logs[k * total + q];
      codes_[q] = Number.isNaN(log) ? NAN_CODE : log === -Infinity ? EQUAL_CODE : log === Infinity ? INF_CODE : log;
      if (codes_[q] > line && !(log <= logs[rung * total + q])) codes_[q] += 2 * CLASS_STEP;
    }
    const scale = Math.max(1, window.devicePixelRatio || 1), S = 270;
    const w = Math.min(S, Math.max(columns * 40, 60)), t = clamp((w * rows) / columns, Math.min(S, rows * 24, 40), S);
    const down = Math.min(rows, Math.round(t * scale)), across = Math.min(columns, Math.round(w * scale));
    const colour = errorColour(ink, -16, 2, line);
    // more entries than pixels: each pixel shows the worst of its own
    const { worst } = pool(codes_, columns, total, { g0: 0, g1: rows, h0: 0, h1: columns }, down, across);
    paint(map, worst, down, across, Math.round(w * scale), Math.round(t * scale), colour, ink);
    const g = cellGaps(map, down, across, scale, root, ink), [x_, y_] = [map.width / across, map.height / down];
    Object.assign(g, { textAlign: "center", textBaseline: "middle", font: `${Math.round(10 * scale)}px ui-monospace, monospace` });
    for (let q = 0; q < worst.length && Math.min(x_, y_) >= 9 * scale; q++) { // no colour of the scale: in letters
      const code = worst[q] - CLASS_STEP * classOf(worst[q]);
      if (!(code > 750)) continue;
      g.fillStyle = lightness(colour(worst[q])) > 140 ? "#111" : "#fff";
      g.fillText(Math.min(x_ / 34, y_ / 15) < scale ? (code > 850 ? "×" : "∞") : code > 850 ? "NaN" : "inf", ((q % across) + 0.5) * x_, (Math.floor(q / across) + 0.55) * y_);
    }
    Object.assign(map.style, { width: `${w}px`, height: `${t}px` });
    errorScale(freshScale(mapScale, S, scale), S, [-16, 2], line, colour, getComputedStyle(root).getPropertyValue("--mute"));
    heat.style.width = `${S}px`;
    const { name } = data.inputs[picked];
    const step = ladder() ? `at h = ${format(data.steps[k], 2)}` : "at steps chosen per entry";
    mapTitle.replaceChildren(h("b", { title: name }, squeezed(name.slice(prefix.length), 22, prefix ? "…" : "")), h("span", {}, step));
    const worst_ = codes_.reduce((a, b) => Math.max(a, b), -Infinity);
    map.setAttribute("aria-label", `Error of ${name} ${step}; ${classOf(worst_) ? "some entries are beyond the tolerance" : "all within the tolerance"}`);
    tell_();
  }
  // What stands under the pointer, also when the cursor has been moved under it.
  function tell_(event = over) {
    over = event;
    if (!slices) return;
    const { rows, columns, logs } = slices, { name, shape } = data.inputs[picked];
    if (!event) { mapNote.textContent = "relative error of every entry · point to read"; return; }
    const box = map.getBoundingClientRect();
    const r = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1), c = clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
    const log = logs[(ladder() ? near() : 0) * rows * columns + r * columns + c];
    const whole = shape && shape.reduce((a, b) => a * b, 1) === rows * columns;
    const column = slices.at?.[c] ?? c; // where only some were swept
    const place = slices.at && rows === 1 ? entryName({ name, shape }, column) : whole ? squeezed(entryName({ name, shape }, r * columns + c).slice(prefix.length), 28, prefix ? "…" : "") : `J[${r}, ${column}]`;
    mapNote.textContent = `${place}: ${log === -Infinity ? "equal" : format(10 ** log, 2)}`;
  }
  map.addEventListener("pointermove", (event) => tell_(event));
  map.addEventListener("pointerleave", () => tell_(null));
  // With a kernel, a name opens the Jacobian at the cursor's step.
  function open(input) {
    if (!host.live || !host.get("can_recompute")) return;
    message.className = "mute";
    message.textContent = `measuring ${input.name} …`;
    host.ask({ type: "jacobian", input: input.name, h: ladder() ? at : null, method }, (answer, planes) => {
      message.className = "message";
      message.textContent = answer.error ?? "";
      if (!answer.error) nested(below, answer.page, planes);
    });
  }

  stops.push(() => clearNested(below), host.on("page", load), host.on("method", load), host.on("h", () => { if (data && host.get("h") > 0) { at = nearest(host.get("h")); draw(); } }),
    host.on("picked", () => { const i = data.inputs.findIndex((input) => input.name === host.get("picked")); if (i >= 0 && i !== picked) { picked = i; fetchSlices(); draw(); } }),
    onTheme(root, (dark) => { ink = inks(dark); root.classList.toggle("dark", dark); if (data) draw(); }),
    onWidth(root, (now) => { width = now; if (data) draw(); }));
  load();
  return () => stops.forEach((stop) => stop?.());
}

// A report inside another view: its own small state, its numbers already here, under
// names like "0/a": plane a of block 0.
const stopNested = new WeakMap();
function clearNested(place) {
  stopNested.get(place)?.();
  stopNested.delete(place);
  place.replaceChildren();
}
function nested(place, state, planes) {
  clearNested(place);
  const own = { kind: "jacobian", page: state, param: state.param, tol: null, metric: "rel", selected: [] };
  const parts = {};
  for (const [name, bytes] of Object.entries(planes)) {
    const [number_, plane] = name.split("/");
    (parts[state.blocks[number_].key] ??= {})[plane] = bytes;
  }
  stopNested.set(place, mountJacobian(place, {
    live: false, get: (key) => own[key], set: (key, value) => { own[key] = value; }, on: () => () => {}, ask: () => {}, load: (block, call) => call(parts[block.key]),
  }));
  place.firstChild.classList.add("nested");
  place.scrollIntoView({ block: "nearest" });
}

// ========================================================================= LayerBlame
// The network from the input down to the loss. Gradients flow upwards, so a wrong layer
// spoils what stands above it; those rows say that they are contaminated.

const STATES = {
  right: { glyph: "✓", class: "ok", words: "right", many: "right" },
  holds: { glyph: "↳", class: "ok", words: "holds a wrong layer", many: "hold a wrong layer" },
  wrong: { glyph: "✗", class: "bad", words: "wrong itself", many: "wrong themselves" },
  contaminated: { glyph: "↑", class: "warn", words: "contaminated", many: "contaminated" },
  unchecked: { glyph: "○", class: "none", words: "not checked", many: "not checked" },
};
const FOLD = 4; // runs of layers that say the same are folded from this length on
const FEW = 8; // so many layers are shown one by one

// Which rows feed which: the names that a row says, as numbers of rows above it; what
// enters a container is fed by the container's own row.
function feeders(rows) {
  const last = new Map(), inside = []; // newest row of a name; open container by depth
  return rows.map((row, i) => {
    const named = row.parents.map((name) => last.get(name)).filter((at) => at !== undefined);
    const owner = inside[row.depth - 1];
    last.set(row.name, i);
    inside.length = row.depth;
    inside[row.depth] = i;
    return named.length ? { from: named } : { from: owner !== undefined && row.called ? [owner] : [], inner: true };
  });
}
// Lanes, as in the history of a version control system: what a row hands on keeps a
// lane of its own until the last row that reads it.
function lanes(parents) {
  const end = parents.map((_, i) => i);
  parents.forEach((from, i) => from.forEach((p) => { end[p] = Math.max(end[p], i); }));
  const busy = []; // lane -> row whose output runs in it
  return parents.map((from, i) => {
    const before = busy.slice();
    for (const p of from) if (end[p] === i) busy[busy.indexOf(p)] = undefined;
    const freed = from.filter((p) => end[p] === i).map((p) => before.indexOf(p));
    let lane = freed.length ? Math.min(...freed) : 0;
    if (!freed.length) while (busy[lane] !== undefined) lane++;
    if (end[i] > i) busy[lane] = i;
    return { lane, from: from.map((p) => [p, before.indexOf(p), end[p] > i]), on: end[i] > i,
      through: before.map((p, k) => [p, k]).filter(([p, k]) => p !== undefined && busy[k] === p) };
  });
}
const LANE = 15, LANES = 9; // pixels of a lane; those beyond share the last one
const FAR = 60; // pixels that lanes go on above and below: a row may be higher, and clips
const laneX = (lane) => 9 + LANE * Math.min(lane, LANES - 1);
// A wrong gradient travels up, along the lanes, from the culprit to what it contaminates.
const spoils = (node, p) => (node.states[p] === "contaminated" && node.spoiled[p] > node.row ? "spoiled" : null);
function rail(node, wide) {
  const H = 27, mid = H / 2, x = laneX(node.lane);
  const spoiled = (p) => spoils(node, p);
  const svg = s("svg", { width: wide, height: H, viewBox: `0 0 ${wide} ${H}`, class: "rail", "aria-hidden": "true" });
  for (const [p, lane] of node.through) svg.append(s("path", { class: spoiled(p), d: `M${laneX(lane)} ${-FAR}V${H + FAR}` }));
  for (const [p, lane] of node.from) {
    const from = laneX(lane);
    svg.append(s("path", { class: [node.states[p] === "contaminated" && node.touched && "spoiled", node.inner && "inner"].filter(Boolean).join(" "), d: `M${from} ${-FAR}V${from === x ? mid : `-1C${from} ${mid} ${from} ${mid} ${x} ${mid}`}` }));
  }
  if (node.on) svg.append(s("path", { class: spoiled(node.row), d: `M${x} ${mid}V${H + FAR}` }));
  svg.append(s("circle", { cx: x, cy: mid, r: 7.5 }), s("text", { x, y: mid + 4, "text-anchor": "middle" }, STATES[node.states[node.row]].glyph));
  return svg;
}

function drawLayers(place, audit, open, title) {
  const rows = audit.rows.map((row) => ({ ...row, called: row.called ?? true }));
  const root_ = rows.findIndex((row) => row.name === audit.culprits[0] && row.state === "wrong");
  let picked = root_ >= 0 ? root_ : rows.findIndex((row) => row.state === "wrong");
  const fed = feeders(rows);
  // whether a wrong gradient passes through a row, or through what is inside it
  const touched = rows.map((_, i) => {
    let end = i + 1;
    while (end < rows.length && rows[end].depth > rows[i].depth) end++;
    return rows.slice(i, end).some((row) => row.state === "wrong" || row.state === "contaminated");
  });
  const unfolded = new Set();
  const counts = Object.keys(STATES).map((state) => [state, rows.filter((row) => row.state === state).length]).filter(([, n]) => n);
  const list = h("div", { class: "layers", role: "group", "aria-label": "Layers, from the input to the loss" });
  const note = h("p", { class: "keys" }, "input at the top, loss at the bottom; gradients flow upwards · ", counts.map(([state, n], i) => [i ? " · " : "", h("span", { class: `nowrap ${STATES[state].class}` }, h("b", {}, STATES[state].glyph), ` ${count(n)} ${n === 1 ? STATES[state].words : STATES[state].many}`)]));
  place.replaceChildren(...(title ? [h("div", { class: "cap" }, h("b", {}, title))] : []), list, note);
  const LOW = -16, HIGH = 0;
  let wide = 0; // of the rail

  // A bar and the number that it stands for; neither where nothing was measured.
  function size(error) {
    if (!Number.isFinite(error)) return [h("span", { class: "track none" }), h("span", { class: "worst num" }, "–")];
    const log = error > 0 ? Math.log10(error) : LOW, bar = h("i");
    bar.style.width = `${(clamp((log - LOW) / (HIGH - LOW), 0.01, 1) * 100).toFixed(1)}%`;
    return [h("span", { class: "track" }, bar), h("span", { class: "worst num" }, format(error, 2))];
  }
  function row(item, i, node) {
    const state = STATES[item.state];
    const on = i === picked;
    const line = h("div", { class: `lrow ${state.class}`, role: "button", ...FOCUS, tabindex: on || (picked < 0 && !i) ? "0" : "-1", "aria-expanded": String(on), "data-index": String(i), title: item.name,
      "aria-label": `${item.name}, ${item.type}, ${state.words}${item.parents.length ? `, takes its input from ${item.parents.join(", ")}` : ""}` },
      rail(node, wide),
      named(item.name + (item.call ? ` (call ${item.call + 1})` : ""), { indent: Math.min(item.depth, 8) * 9 }),
      h("span", { class: "shape" }, item.type),
      ...size(number(item.error)),
      h("span", { class: "tally" }, state.words));
    line.addEventListener("click", () => choose(i));
    return on ? [line, detail(item, i, node, state)] : [line];
  }
  function detail(item, i, node, state) {
    const where = item.place || null;
    const bar = number(item.bar);
    // the lanes go on beside the words
    const past = h("span", { class: "past", "aria-hidden": "true" });
    const running = [...node.through, ...(node.on ? [[node.row, node.lane]] : [])];
    past.append(...running.map(([p, lane]) => { const i_ = h("i", { class: spoils(node, p) }); i_.style.left = `${laneX(lane) - 0.75}px`; return i_; }));
    const words = h("div", {},
      h("p", {}, withCode(item.reason || state.words)),
      h("p", { class: "mute" }, [item.piece && !item.reason.includes(item.piece) && `worst with respect to ${item.piece}`, Number.isFinite(bar) && `relative error ${format(number(item.error), 2)} ± ${format(bar, 2)}`,
        item.parents.length && `its input comes from ${item.parents.map(layerName).join(", ")}`].filter(Boolean).join(" · ")),
      where && h("p", { class: "mute num" }, where),
      open?.label && item.called && h("button", { type: "button", ...FOCUS, class: "look", onclick: () => open(item) }, open.label));
    words.style.paddingLeft = `${wide + 10}px`;
    return h("div", { class: `ldetail ${state.class}` }, past, words);
  }
  // What is drawn: rows, and runs of rows that say the same, folded into one.
  function plan() {
    const shown = [];
    for (let i = 0; i < rows.length; i++) {
      let end = i;
      const state = rows[i].state;
      while (state !== "wrong" && state !== "holds" && end < rows.length && rows[end].state === state && end !== picked) end++;
      if (end - i >= FOLD && rows.length > FEW && !unfolded.has(i)) {
        shown.push({ first: i, last: end - 1, state });
        i = end - 1;
      } else if (end > i && unfolded.has(i)) {
        for (; i < end; i++) shown.push({ first: i, last: i, state });
        i--;
      } else shown.push({ first: i, last: i, state });
    }
    return shown;
  }
  function draw(focus) {
    const shown = plan();
    const home = new Int32Array(rows.length);
    shown.forEach(({ first, last }, k) => home.fill(k, first, last + 1));
    const parents = shown.map(({ first, last }, k) => {
      const from = new Set();
      for (let i = first; i <= last; i++) for (const p of fed[i].from) if (home[p] !== k) from.add(home[p]);
      return [...from];
    });
    const nodes = lanes(parents), states = shown.map((item) => item.state);
    const through = shown.map(({ first, last }) => touched.slice(first, last + 1).some(Boolean));
    const spoiled = states.map((_, k) => k);
    parents.forEach((from, k) => { if (through[k]) for (const p of from) spoiled[p] = k; });
    wide = laneX(Math.min(LANES - 1, Math.max(0, ...nodes.map((node) => node.lane)))) + 10;
    list.style.setProperty("--rail", `${wide}px`);
    const head = h("div", { class: "lrow lhead", "aria-hidden": "true" }, h("span"), h("span", { class: "name" }, `${count(rows.length)} layers`), h("span", { class: "shape" }, "type"),
      h("span", { class: "size" }, h("span", { class: "long" }, "its own "), "error", h("span", { class: "long" }, ", 10⁻¹⁶ … 1")), h("span", { class: "worst" }), h("span", {}, "verdict"));
    const parts = shown.flatMap(({ first, last, state }, k) => {
      const node = { ...nodes[k], row: k, states, spoiled, touched: through[k], inner: fed[first].inner };
      if (first === last) return row(rows[first], first, node);
      const n = last - first + 1;
      return h("button", { type: "button", class: `fold ${STATES[state].class}`, ...FOCUS, "aria-expanded": "false", title: "show them", onclick: () => { unfolded.add(first); draw(); list.querySelector(`[data-index="${first}"]`).focus(); } },
        rail(node, wide), h("span", { class: "run" }, h("span", { "aria-hidden": "true" }, "▸ "), `${count(n)} layers: `, h("span", { class: "name" }, breakable(rows[first].name), " … ", breakable(rows[last].name))),
        ...size(Math.max(...rows.slice(first, last + 1).map((each) => number(each.error)).filter(Number.isFinite))), h("span", { class: "tally" }, STATES[state].words));
    });
    list.replaceChildren(head, ...parts);
    const on = list.querySelector(".lrow[aria-expanded=true]");
    if (on && focus) on.focus({ preventScroll: true });
    const end = on && on.nextElementSibling.offsetTop + on.nextElementSibling.offsetHeight; // of its words
    if (on && (on.offsetTop < list.scrollTop + 24 || end > list.scrollTop + list.clientHeight)) list.scrollTop = Math.max(0, on.offsetTop - 100);
  }
  function choose(i, focus = true) {
    if (i < 0 || i >= rows.length) return;
    picked = i;
    draw(focus);
    open?.(rows[i]);
  }
  list.addEventListener("keydown", (event) => {
    const lines = [...list.querySelectorAll(".lrow[role]")];
    if (!lines.includes(event.target)) return;
    const at = lines.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: lines.length - 1, Enter: at, " ": at }[event.key];
    if (to === undefined) return;
    const line = lines[clamp(to, 0, lines.length - 1)];
    choose(Number(line.dataset.index));
    event.preventDefault();
    event.stopPropagation();
  });
  draw();
  return { choose: (name) => { const i = rows.findIndex((r) => r.name === name); if (i >= 0) choose(i, false); } };
}

export function mountLayers(element, host) {
  const root = shell(element, "Layers");
  const stops = [];
  const body = h("div", {}), message = h("p", { class: "message", role: "status", "aria-live": "polite" }), below = h("div", {});
  const alive = () => host.live && host.get("can_recompute");
  let handle = null;
  // With a kernel, a layer opens its own Jacobian, on the inputs that it really saw.
  function open(row) {
    host.set("picked", row.name);
    if (!alive()) return;
    if (!row.called) { clearNested(below); message.textContent = ""; return; }
    message.className = "mute";
    message.textContent = `measuring ${row.name} by itself …`;
    root.classList.add("busy");
    ask(row);
  }
  // a walk with the arrow keys asks once, where it ends
  const ask = debounce((row) => host.ask({ type: "layer", name: row.name, call: row.call }, (answer, planes) => {
    root.classList.remove("busy");
    message.className = answer.error ? "message" : "mute";
    message.textContent = answer.error ?? "";
    if (answer.error) clearNested(below);
    else nested(below, answer.page, planes);
  }), 150);
  function load() {
    const audit = host.get("page");
    open.label = alive() ? "its own Jacobian" : null;
    root.replaceChildren(root.firstChild, reportHead(audit), ...findingList(audit.findings ?? [], audit.culprits, (where) => handle?.choose(where)), body, message, below);
    handle = drawLayers(body, audit, open);
  }
  stops.push(host.on("page", load), host.on("picked", () => {}), () => clearNested(below),
    onTheme(root, (dark) => root.classList.toggle("dark", dark)),
    onWidth(root, () => {}));
  load();
  return () => stops.forEach((stop) => stop?.());
}

// ------------------------------------------------------------------------------ hosts

const MOUNTS = { jacobian: mountJacobian, sweep: mountSweep, layers: mountLayers };

// No kernel: state and numbers are in the page.
export function mountStatic(element, state, blobs) {
  const decoded = {};
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const host = {
    live: false,
    get: (key) => state[key],
    set: (key, value) => { state[key] = value; },
    on: () => () => {},
    ask: () => {},
    load: (block, call) => call(decoded[block.key] ??= Object.fromEntries(
      Object.entries(blobs[block.key]).map(([k, text]) => [k, bytes(text)]))),
  };
  return MOUNTS[state.kind](element, host);
}

// anywidget: state in traits, numbers of the chosen block in the trait `block`,
// questions and answers as messages that carry a number, so that late ones are dropped.
const GONE = "the kernel of this view is gone: run the cell again";
function liveHost(model) {
  const waiting = new Map();
  let last = 0;
  const onMessage = (content, buffers) => {
    const call = waiting.get(content.id);
    if (!call) return;
    waiting.delete(content.id);
    const planes = content.names && Object.fromEntries(content.names.map((name, i) => [name, buffers[i]]));
    call(content, planes);
  };
  model.on("msg:custom", onMessage);
  const host = {
    live: true,
    get: (key) => model.get(key),
    set: (key, value) => {
      if (JSON.stringify(model.get(key)) === JSON.stringify(value)) return;
      model.set(key, value);
      try { model.save_changes(); } catch { /* without a kernel the page goes on alone */ }
    },
    on: (key, call) => {
      model.on(`change:${key}`, call);
      return () => model.off(`change:${key}`, call);
    },
    ask: (message, call) => {
      for (const [id, other] of waiting) if (other.type === message.type) waiting.delete(id);
      call.type = message.type;
      waiting.set(++last, call);
      try {
        model.send({ ...message, id: last });
      } catch {
        waiting.delete(last);
        call({ error: GONE });
      }
    },
    load: (block, call) => {
      const held = model.get("block");
      if (held?.key === block.key) { call(held.planes, held.meta); return; }
      host.ask({ type: "block", key: block.key }, (answer, planes) => {
        // no numbers: they come in the trait, which follows `param`
        if (answer.error || answer.names.length) call(planes, answer.meta, answer.error);
      });
    },
  };
  return [host, () => model.off("msg:custom", onMessage)];
}

export default {
  render({ model, el }) {
    const [host, stop] = liveHost(model);
    const unmount = MOUNTS[model.get("kind")](el, host);
    return () => { stop(); unmount(); };
  },
};
