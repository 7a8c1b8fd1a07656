// What is seen of the page in the frame, written in place of the document that holds it.
addEventListener("load", () => setTimeout(() => {
  const frame = document.querySelector("iframe"), page = frame.contentDocument;
  const seen = [...page.querySelectorAll("main .item")].filter(item => !item.closest("[hidden]"));
  const texts = kind => seen.filter(item => item.matches(kind)).map(item => item.textContent);
  const target = page.getElementById(decodeURIComponent(frame.contentWindow.location.hash.slice(1)));
  const top = target && target.getBoundingClientRect().top;
  const bar = page.querySelector("header.phone").getBoundingClientRect();
  const holders = [...page.querySelectorAll("main .group, main .part")];
  const number = page.querySelector("button.number");
  number.focus();
  number.click();
  const popover = page.getElementById("origin"), facts = popover.matches(":popover-open") && popover.textContent;
  popover.hidePopover();
  document.body.textContent = JSON.stringify({
    claims: seen.filter(item => item.matches("li.claim")).map(item => item.dataset.status),
    rows: seen.filter(item => item.matches("tr.row")).map(item => item.dataset.verdicts),
    texts: [...texts("li.claim"), ...texts("tr.row")],
    others: seen.filter(item => !item.matches("li.claim, tr.row")).map(item => item.dataset.status ?? item.dataset.verdicts ?? ""),
    empty: holders.filter(part => !part.closest("[hidden]") && part.querySelector(".item") && !seen.some(item => part.contains(item))).map(part => part.id),
    said: page.getElementById("shown").textContent,
    none: !page.getElementById("none").hidden,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    target: top,
    bar: bar.bottom,
    origin: facts,
  });
}, 500));
