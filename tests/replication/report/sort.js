// Run the script of the sortable page on three rows without a browser; print the order of the rows
// after clicks on the headings, and which of them each filter leaves.
const cell = text => ({textContent: text});
const family = texts => ({cells: texts.map(cell), hidden: false});
const families = [["b", "9.5 ± 1"], ["a", "n/a"], ["c", "10.0"]].map(family);
const button = () => ({addEventListener(name, run) { this.click = run; }});
const headings = [0, 1].map(() => ({ariaSort: null, firstElementChild: button()}));
const said = [], shown = {}, events = {};
let typed = {};
const named = rows => rows.map(row => row.cells[0].textContent).join("");
const tbody = {rows: families, append(...sorted) { said.push(named(sorted)); }};
const parts = {
  rows: {addEventListener(name, run) { events[name] = run; }},
  table: {tBodies: [tbody], tHead: {rows: [{cells: headings}]}},
  shown,
};
globalThis.document = {getElementById: id => parts[id]};
globalThis.FormData = class { *[Symbol.iterator]() { yield* Object.entries(typed); } };
SCRIPT
for (const column of [1, 1, 0, 0]) headings[column].firstElementChild.click();
for (const [words, least] of [["", "10"], ["a", ""], ["", ""]]) {
  typed = {words, column: "1", least};
  events.input();
  said.push(named(families.filter(row => !row.hidden)));
}
console.log(JSON.stringify([...said, shown.textContent]));
