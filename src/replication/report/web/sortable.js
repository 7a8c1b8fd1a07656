"use strict";
const form = document.getElementById("rows"), table = document.getElementById("table");
const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows].at(-1).cells;

/* What a cell is sorted by: its number, the family's name, or null where there is no number. */
function key(row, column) {
  const text = row.cells[column].textContent;
  if (column === 0) return text;
  const number = parseFloat(text);
  return Number.isNaN(number) ? null : number;
}

function compare(first, second, sign) {
  if (first === null || second === null) return (first === null) - (second === null);  // at the end in both directions
  return sign * (typeof first === "string" ? first.localeCompare(second) : first - second);
}

/* The first click on a number shows the largest at the top, on a name the alphabet; the next turns it. */
for (const [column, head] of [...heads].entries())
  head.firstElementChild.addEventListener("click", () => {
    const initial = column === 0 ? "ascending" : "descending", turned = column === 0 ? "descending" : "ascending";
    const order = head.ariaSort === initial ? turned : initial, sign = order === "ascending" ? 1 : -1;
    for (const other of heads) other.ariaSort = null;
    head.ariaSort = order;
    body.append(...rows.sort((first, second) => compare(key(first, column), key(second, column), sign)));
  });

form.addEventListener("input", () => {
  const {words, column, least} = Object.fromEntries(new FormData(form));
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const number = key(row, Number(column)), name = row.cells[0].textContent.toLowerCase();
    row.hidden = !(wanted.every(word => name.includes(word)) && (least === "" || (number !== null && number >= Number(least))));
  }
  document.getElementById("shown").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
});
form.addEventListener("submit", event => event.preventDefault());
