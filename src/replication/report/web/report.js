"use strict";
const one = (selector, inside = document) => inside.querySelector(selector);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const root = document.documentElement, form = one("#filters"), main = one("main");

/* Search and filters. The address keeps them, beside the anchor: ?q=...&status=...&verdict=... */
const items = all(".item").map(element => ({
  element,
  text: (element.textContent + " " + (element.closest("[data-text]")?.dataset.text ?? "")).toLowerCase(),
  status: element.dataset.status,
  verdicts: element.dataset.verdicts?.split(" "),
}));
const links = new Map(all("#side li a").map(link => [link.hash.slice(1), link]));
const opened = new Set();  // folds that a search has opened

function chosen(item, wanted) {
  if (item.status !== undefined) return wanted.status ? item.status === wanted.status : !wanted.verdict;
  if (item.verdicts) return wanted.verdict ? item.verdicts.includes(wanted.verdict) : !wanted.status;
  return !wanted.status && !wanted.verdict;
}

function apply() {
  const wanted = Object.fromEntries(new FormData(form)), words = wanted.q.toLowerCase().split(/\s+/).filter(Boolean);
  const active = words.length > 0 || wanted.status !== "" || wanted.verdict !== "";
  for (const item of items) item.element.hidden = !(chosen(item, wanted) && words.every(word => item.text.includes(word)));
  const empty = element => active && !one(".item:not([hidden])", element);
  for (const element of [...all(".group"), ...all(".part"), ...all("main .scroll"), ...all("main .claims")]) element.hidden = empty(element);
  for (const fold of all("main details.fold")) {
    const hit = active && one(".item:not([hidden])", fold) !== null;
    if (hit && !fold.open) { fold.open = true; opened.add(fold); }
    else if (!hit && opened.delete(fold)) fold.open = false;
    if (one(".item", fold)) fold.hidden = active && !hit;
  }
  one(".lead").hidden = active;
  for (const [id, link] of links) link.classList.toggle("away", document.getElementById(id).closest("[hidden]") !== null);
  const seen = kind => all(kind).filter(element => !element.hidden).length;
  one("#shown").textContent = active ? `${seen("li.claim")} claims and ${seen("tr.row")} table rows shown` : "";
  one("#filters button").hidden = !active;
  one("#none").hidden = one("main .item:not([hidden])") !== null;
  mark(words);
  return active;
}

function mark(words) {
  if (!window.Highlight) return;
  CSS.highlights.delete("hit");
  if (!words.length) return;
  const found = [], texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()) && found.length < 800;)
    for (const word of words) {
      const start = text.data.toLowerCase().indexOf(word);
      if (start < 0) continue;
      const range = new Range();
      range.setStart(text, start);
      range.setEnd(text, start + word.length);
      found.push(range);
    }
  CSS.highlights.set("hit", new Highlight(...found));
}

function remember() {
  const state = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  try { history.replaceState(null, "", (state.size ? "?" + state : location.pathname) + location.hash); } catch { /* a page opened as a file */ }
  if (apply()) scrollTo({top: 0});
}

form.addEventListener("input", remember);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(remember));
one(".clear").addEventListener("click", () => form.reset());
addEventListener("keydown", event => {
  if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  event.preventDefault();
  menu(true);
  form.q.focus();
});

/* The origin of a number: by click, tap or Enter; Escape closes it and the focus goes back. */
const popover = one("#origin"), SIGNS = Object.fromEntries(all(".sign").map(sign => [sign.closest("td").className.slice(2), sign.ariaLabel]));
let numbers, from;

function line(parent, tag, text, name = "") {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  element.className = name;
  return element;
}

function tell(button) {
  numbers ??= JSON.parse(one("#numbers").textContent);
  const [target, number] = button.dataset.number.split(" ");
  const [row, column, measured, printed, verdict, same, facts] = numbers[target][number];
  popover.replaceChildren();
  line(popover, "button", "✕", "close").ariaLabel = "close";
  line(popover, "h4", `${row} · ${column}`);
  const pair = line(popover, "div", "", "pair");
  line(line(pair, "span", "here"), "b", measured);
  line(line(pair, "span", "printed", "p"), "b", printed || "—");
  line(popover, "p", same ? `The number of ${same}.` : SIGNS[verdict] ?? {not_run: "not run", refused: "not defined for the model", unprinted: "not in the paper"}[verdict], "say");
  const list = line(popover, "dl", "");
  for (const [name, fact] of Object.entries({...facts, "make again": `snakemake ${target}`, trace: `vitrail why ${target} "${row}" "${column}"`})) {
    line(list, "dt", name);
    line(list, "dd", fact);
  }
  from = button;
  popover.showPopover();
  const place = button.getBoundingClientRect(), {offsetWidth: width, offsetHeight: height} = popover;
  popover.style.left = `${Math.max(12, Math.min(place.left, innerWidth - width - 12))}px`;
  popover.style.top = `${place.bottom + height + 10 < innerHeight ? place.bottom + 6 : Math.max(12, place.top - height - 6)}px`;
  one(".close", popover).focus({preventScroll: true});
}

popover.addEventListener("toggle", event => { if (event.newState === "closed") from?.focus({preventScroll: true}); });
addEventListener("scroll", () => { if (popover.matches(":popover-open")) popover.hidePopover(); }, {passive: true});
document.addEventListener("click", event => {
  const number = event.target.closest(".number"), plate = event.target.closest(".plate");
  if (number) tell(number);
  if (event.target.closest("#origin .close")) popover.hidePopover();
  if (plate) {
    const picture = one("img", plate), dialog = one("#enlarged");
    Object.assign(one("img", dialog), {src: picture.src, alt: picture.alt});
    dialog.showModal();
  }
  if (event.target.closest("#side a")) menu(false);
});

/* An anchor shows what it names: folds open, and a filter that hides it is taken back. */
function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest("[hidden]")) form.reset();
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  setTimeout(() => target.scrollIntoView());
}
addEventListener("hashchange", reveal);

function menu(open) {
  document.body.classList.toggle("open", open);
  one("#menu").ariaExpanded = open;
}
one("#menu").addEventListener("click", () => menu(!document.body.classList.contains("open")));
one("#theme").addEventListener("click", () => {
  const set = root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.style.colorScheme = set === "dark" ? "light" : "dark";
});
addEventListener("beforeprint", () => all("main details").forEach(fold => { fold.open = true; }));

/* Which part one reads is marked in the contents. */
let current;
const watch = new IntersectionObserver(entries => {
  const entered = entries.findLast(entry => entry.isIntersecting);
  const link = entered && links.get(entered.target.id);
  if (!link || link === current) return;
  current?.removeAttribute("aria-current");
  current = link;
  link.ariaCurrent = "true";
  const paper = link.closest("details");
  if (paper && !paper.open) all("#side details").forEach(other => { other.open = other === paper; });
  if (innerWidth > 760) link.scrollIntoView({block: "nearest"});
}, {rootMargin: "-10% 0px -80% 0px"});
for (const id of links.keys()) watch.observe(document.getElementById(id));

for (const [name, value] of new URLSearchParams(location.search)) if (form.elements[name]) form.elements[name].value = value;
apply();
reveal();
