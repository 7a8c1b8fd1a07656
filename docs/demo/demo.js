"use strict";
/* Images are arrays of 3 * side * side numbers in [0, 1], channel by channel, as the models take them. */
const demo = window.demo = {};
const at = (channel, y, x, side) => (channel * side + y) * side + x;
const one = (selector, inside = document) => inside.querySelector(selector);

function make(parent, tag, text = "", name = "") {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  element.className = name;
  return element;
}

/* How much of pixel m of a row of n lies at place n0 after the row moved: trigonometric interpolation. */
function weights(n, shift) {
  const found = new Float64Array(n);
  for (let m = 0; m < n; m++) {
    const distance = m - shift, turns = distance / n;
    if (Math.abs(turns - Math.round(turns)) < 1e-12) found[m] = 1;
    else found[m] = Math.sin(Math.PI * distance) / (n * Math.tan(Math.PI * turns));
  }
  return found;
}

/* The image on a torus, moved down by y and right by x pixels, which may be fractions. */
demo.shifted = (image, side, y, x) => {
  const down = weights(side, y), right = weights(side, x);
  const rows = new Float64Array(image.length), whole = new Float32Array(image.length);
  const sparse = row => [...row.keys()].filter(m => row[m] !== 0).map(m => [m, row[m]]);
  const downs = sparse(down), rights = sparse(right);
  for (let c = 0; c < 3; c++)
    for (let v = 0; v < side; v++)
      for (let u = 0; u < side; u++) {
        let sum = 0;
        for (const [m, weight] of rights) sum += weight * image[at(c, v, (u - m + side) % side, side)];
        rows[at(c, v, u, side)] = sum;
      }
  for (let c = 0; c < 3; c++)
    for (let v = 0; v < side; v++)
      for (let u = 0; u < side; u++) {
        let sum = 0;
        for (const [m, weight] of downs) sum += weight * rows[at(c, (v - m + side) % side, u, side)];
        whole[at(c, v, u, side)] = sum;
      }
  return whole;
};

/* The image mirrored left to right, if it is to be, and then turned by quarters. */
demo.turned = (image, side, quarters, mirrored) => {
  let found = Float32Array.from(image);
  const change = place => {
    const before = found;
    found = new Float32Array(before.length);
    for (let c = 0; c < 3; c++)
      for (let v = 0; v < side; v++)
        for (let u = 0; u < side; u++) found[at(c, v, u, side)] = before[at(c, ...place(v, u), side)];
  };
  if (mirrored) change((v, u) => [v, side - 1 - u]);
  for (let turn = 0; turn < quarters; turn++) change((v, u) => [u, side - 1 - v]);
  return found;
};

async function pixels(uri, side) {
  const picture = new Image();
  picture.src = uri;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const {data} = context.getImageData(0, 0, side, side), image = new Float32Array(3 * side * side);
  for (let c = 0; c < 3; c++) for (let place = 0; place < side * side; place++) image[c * side * side + place] = data[4 * place + c] / 255;
  return image;
}

/* A panel: its image, how that is changed, and models that judge it. */
class Panel {
  constructor(name, about) {
    Object.assign(this, {name, about, side: about.side, section: one(`#${name}`), y: 0, x: 0, quarters: 0, mirrored: false, running: false});
  }

  async load() {
    const {about, section} = this;
    this.images = await Promise.all(about.images.map(uri => pixels(uri, this.side)));
    this.models = [];
    for (const model of about.models) {
      const session = await ort.InferenceSession.create(`models/${model.file}`, {executionProviders: ["wasm"]});
      const box = make(one(".models", section), "div", "", "model");
      this.models.push({...model, session, title: make(box, "h3"), bars: make(box, "div", "", "logits"), said: make(box, "p", "", "said")});
    }
    const list = one(".images", section);
    this.buttons = about.images.map((uri, number) => {
      const button = make(list, "button");
      button.type = "button";
      button.ariaLabel = `image ${number + 1}`;
      make(button, "img").src = uri;
      button.addEventListener("click", () => this.choose(number));
      return button;
    });
    await this.choose(0);
  }

  async choose(number) {
    this.image = this.images[number];
    this.buttons.forEach((button, index) => { button.ariaPressed = index === number; });
    for (const model of this.models) model.rest = await this.judge(model, this.image);
    await this.set({y: 0, x: 0, quarters: 0, mirrored: false});
  }

  async judge(model, image) {
    const {session} = model, input = new ort.Tensor("float32", image, [1, 3, this.side, this.side]);
    const found = await session.run({[session.inputNames[0]]: input});
    return Array.from(found[session.outputNames[0]].data);
  }

  seen() {
    return this.name === "shift" ? demo.shifted(this.image, this.side, this.y, this.x) : demo.turned(this.image, this.side, this.quarters, this.mirrored);
  }

  async set(state) {
    Object.assign(this, state);
    this.waiting = true;
    if (this.running) return;
    this.running = true;
    while (this.waiting) {
      this.waiting = false;
      const image = this.seen();
      this.draw(image);
      for (const model of this.models) this.tell(model, await this.judge(model, image));
    }
    this.running = false;
  }

  change(model, logits) {
    return Math.sqrt(logits.reduce((sum, logit, label) => sum + (logit - model.rest[label]) ** 2, 0) / logits.length) / model.spread;
  }

  tell(model, logits) {
    const best = logits.indexOf(Math.max(...logits)), before = model.rest.indexOf(Math.max(...model.rest));
    const all = [...logits, ...model.rest], low = Math.min(...all), height = logit => `${(100 * (logit - low)) / (Math.max(...all) - low)}%`;
    model.change = this.change(model, logits);
    model.title.replaceChildren(model.name);
    const still = model.change < 1e-4;
    make(model.title, "span", still ? "logits unchanged" : `logits moved by ${model.change.toFixed(3)}`, still ? "still" : "moved");
    model.bars.replaceChildren();
    logits.forEach((logit, label) => {
      const bar = make(model.bars, "span", "", label === best ? "best" : "");
      bar.title = `class ${label}: ${logit.toFixed(4)}, at rest ${model.rest[label].toFixed(4)}`;
      make(bar, "i").style.height = height(logit);
      make(bar, "b").style.bottom = height(model.rest[label]);
    });
    model.said.textContent = `Predicts class ${best}${best === before ? ", as at rest" : `; at rest class ${before}`}. Red lines: at rest.`;
  }

  draw(image) {
    const {side} = this, canvas = one("canvas", this.section), context = canvas.getContext("2d"), small = new ImageData(side, side);
    for (let place = 0; place < side * side; place++) {
      for (let c = 0; c < 3; c++) small.data[4 * place + c] = Math.round(255 * Math.min(1, Math.max(0, image[c * side * side + place])));
      small.data[4 * place + 3] = 255;
    }
    const sheet = new OffscreenCanvas(side, side);
    sheet.getContext("2d").putImageData(small, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(sheet, 0, 0, canvas.width, canvas.height);
    const shown = one("output", this.section);
    shown.textContent = this.name === "shift" ? `${+this.x.toFixed(2)}, ${+this.y.toFixed(2)}` : `${90 * this.quarters}°${this.mirrored ? ", mirrored" : ""}`;
  }

  /* The change of each model's logits along a walk to the right. */
  async walk(pixels = 8, steps = 8) {
    const points = this.models.map(() => []);
    for (let step = 0; step <= pixels * steps; step++) {
      const image = demo.shifted(this.image, this.side, 0, step / steps);
      for (const [index, model] of this.models.entries()) points[index].push(this.change(model, await this.judge(model, image)));
    }
    const figure = one("figure", this.section), plot = one("svg", figure), most = Math.max(...points.flat(), 0.01);
    const place = (value, step) => [40 + (590 * step) / (pixels * steps), 190 - (170 * value) / most];
    const line = (name, attributes) => Object.entries(attributes).forEach(([key, value]) => name.setAttribute(key, value));
    const add = (tag, attributes, text = "") => {
      const element = plot.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      line(element, attributes);
      element.textContent = text;
    };
    plot.replaceChildren();
    add("path", {class: "axis", d: "M40 10V190H630"});
    for (let pixel = 0; pixel <= pixels; pixel++) add("text", {x: place(0, pixel * steps)[0], y: 207, "text-anchor": "middle"}, pixel);
    add("text", {x: 36, y: 22, "text-anchor": "end"}, most.toFixed(2));
    points.forEach((changes, index) => {
      const colour = ["#D55E00", "#0072B2", "#009E73"][index];
      add("path", {d: changes.map((value, step) => `${step ? "L" : "M"}${place(value, step)}`).join(""), stroke: colour});
      changes.forEach((value, step) => { if (step % steps === 0) { const [x, y] = place(value, step); add("circle", {cx: x, cy: y, r: 3.5, fill: colour}); } });
      add("text", {x: 52, y: 22 + 16 * index, style: `fill: ${colour}`}, this.models[index].name);
    });
    figure.hidden = false;
    return points;
  }
}

function control(shift, octic) {
  const canvas = one("#shift canvas"), whole = one("[name=whole]");
  const round = value => (whole.checked ? Math.round(value) : Math.round(8 * value) / 8);
  let from;
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    from = {x: event.clientX, y: event.clientY, shift: [shift.y, shift.x]};
  });
  canvas.addEventListener("pointermove", event => {
    if (!from || !event.buttons) return;
    const scale = shift.side / canvas.clientWidth;
    shift.set({y: round(from.shift[0] + (event.clientY - from.y) * scale), x: round(from.shift[1] + (event.clientX - from.x) * scale)});
  });
  canvas.addEventListener("pointerup", () => { from = undefined; });
  canvas.addEventListener("keydown", event => {
    const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!move) return;
    event.preventDefault();
    const step = whole.checked ? 1 : 1 / 8;
    shift.set({y: shift.y + step * move[0], x: shift.x + step * move[1]});
  });
  one("#shift [name=rest]").addEventListener("click", () => shift.set({y: 0, x: 0}));
  one("#shift [name=walk]").addEventListener("click", () => shift.walk());
  one("#octic [name=turn]").addEventListener("click", () => octic.set({quarters: (octic.quarters + 1) % 4}));
  one("#octic [name=mirror]").addEventListener("click", () => octic.set({mirrored: !octic.mirrored, quarters: (4 - octic.quarters) % 4}));
  one("#octic [name=rest]").addEventListener("click", () => octic.set({quarters: 0, mirrored: false}));
}

demo.ready = (async () => {
  const state = one("#state");
  if (!window.ort) {
    state.textContent = "This copy of the site was built without ONNX's runtime for browsers (make docs needs npm for it), so the models cannot run.";
    return;
  }
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  const about = await (await fetch("models/models.json")).json();
  for (const name of ["shift", "octic"]) await (demo[name] = new Panel(name, about[name])).load();
  control(demo.shift, demo.octic);
  state.hidden = true;
  const told = ["shift", "octic"].map(name => {
    const {commit, dataset, models, scale} = about[name];
    const each = models.map(model => `${model.name} (${model.run}, seed ${model.seed}, ${model.accuracy.toFixed(1)} % of 200 test images)`);
    return `${name}, scale ${scale}, on “${dataset}”: ${each.join(", ")}; exported at commit ${commit.slice(0, 8)}.`;
  });
  one(".origin").textContent = told.join(" ");
})().catch(error => { one("#state").textContent = `The models could not be loaded: ${error.message}`; });
