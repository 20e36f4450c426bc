"use strict";
const $ = (id) => document.getElementById(id);
const search = $("search"), results = $("results"), pages = $("pages"), contents = $("contents"), menu = $("menu");
search.hidden = menu.hidden = false;
contents.classList.add("script");

const sections = [];
for (const article of pages.querySelectorAll("article")) {
  const title = article.querySelector("h1").textContent;
  for (const element of article.children) {
    if (/^H[12]$/.test(element.tagName)) {
      sections.push({ element, title, heading: element.textContent, text: "" });
      const anchor = document.createElement("a");
      anchor.className = "anchor";
      anchor.href = "#" + element.id;
      anchor.textContent = "#";
      anchor.setAttribute("aria-label", "Link to this section");
      element.append(anchor);
    } else {
      sections[sections.length - 1].text += element.textContent.replace(/\s+/g, " ") + " ";
    }
  }
}

// A button beside each piece of code that copies it.
for (const code of pages.querySelectorAll("pre")) {
  const frame = document.createElement("div"), button = document.createElement("button");
  frame.className = "code";
  code.replaceWith(frame);
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  frame.append(code, button);
}
async function copy(button) {
  const code = button.parentNode.querySelector("pre"), text = code.textContent.trimEnd() + "\n";
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // this browser does not let a file write to the clipboard
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 2000);
}

// What each word means: the word, and words of the manual for the same.
const MEANINGS = JSON.parse($("meanings").textContent);
const meanings = (words) => words.map((word) => [word, ...(Object.hasOwn(MEANINGS, word) ? MEANINGS[word] : [])]);

// Sections with all of the words, or with what they mean, those first whose heading has them, and the words side by side.
function find(words) {
  const found = [], phrase = words.join(" "), all = meanings(words);
  for (const section of sections) {
    const heading = (section.title + " " + section.heading).toLowerCase(), text = section.text.toLowerCase();
    let score = 0;
    if (!all.every((same) => same.some((word) => heading.includes(word) || text.includes(word)))) continue;
    for (const word of all.flat()) score += (heading.includes(word) ? 20 : 0) + Math.min(10, text.split(word).length - 1);
    if (words.length > 1) score += 10 * Math.min(10, text.split(phrase).length - 1) + (heading.includes(phrase) ? 20 : 0);
    found.push({ section, score });
  }
  return found.sort((one, other) => other.score - one.score);
}

// Some 200 characters of a text, from the place with most of the words on.
function excerpt(text, words) {
  const lower = text.toLowerCase();
  let best = 0, most = 0;
  for (const word of words) {
    for (let place = lower.indexOf(word); place >= 0; place = lower.indexOf(word, place + 1)) {
      const near = lower.slice(place, place + 140), count = words.filter((each) => near.includes(each)).length + near.includes(words.join(" "));
      if (count > most) { most = count; best = place; }
    }
  }
  const begin = best < 60 ? 0 : text.indexOf(" ", best - 60) + 1;
  const end = text.length - begin < 200 ? text.length : text.lastIndexOf(" ", begin + 200);
  return (begin ? "\u2026 " : "") + text.slice(begin, end) + (end < text.length ? " \u2026" : "");
}

function marked(text, words) {
  const span = document.createElement("span"), lower = text.toLowerCase();
  let at = 0;
  while (at < text.length) {
    let next = text.length, length = 0;
    for (const word of words) {
      const place = lower.indexOf(word, at);
      if (place >= 0 && place < next) { next = place; length = word.length; }
    }
    span.append(text.slice(at, next));
    if (length) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(next, next + length);
      span.append(mark);
    }
    at = next + length;
    if (!length) break;
  }
  return span;
}

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.hidden = !words.length;
  pages.hidden = words.length > 0;
  results.replaceChildren();
  if (!words.length) return;
  const found = find(words), said = meanings(words).flat(), count = document.createElement("p");
  count.textContent = found.length ? found.length + (found.length === 1 ? " section" : " sections") : "Nothing found.";
  results.append(count);
  for (const { section } of found.slice(0, 40)) {
    const link = document.createElement("a"), name = document.createElement("b");
    link.href = "#" + section.element.id;
    name.textContent = section.heading === section.title ? section.title : section.title + " \u203a " + section.heading;
    link.append(name, marked(excerpt(section.text, said), said));
    results.append(link);
  }
  scrollTo(0, 0);
}

function leave() {
  search.value = "";
  show();
  contents.classList.remove("shown");
  menu.setAttribute("aria-expanded", "false");
}

search.addEventListener("input", show);
search.addEventListener("keydown", (event) => {
  const first = results.querySelector("a");
  if (event.key === "Enter" && first) first.click();
  if (event.key === "Escape") { leave(); search.blur(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});
document.addEventListener("click", (event) => {
  if (event.target.matches(".copy")) copy(event.target);
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  leave();  // before the browser goes to a place that must not be hidden
});
menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", String(contents.classList.toggle("shown")));
});

// The section that is read: the last one whose heading has passed the top.
const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.getAttribute("href").slice(1), link]));
function follow() {
  if (pages.hidden) return;
  let current = sections[0];
  for (const section of sections) if (section.element.getBoundingClientRect().top < 100) current = section;
  for (const link of contents.querySelectorAll(".here")) link.classList.remove("here");
  for (const item of contents.querySelectorAll(".open")) item.classList.remove("open");
  const link = links.get(current.element.id);
  link.classList.add("here");
  (link.closest("ul ul") || link).closest("#contents > ul > li").classList.add("open");
  const box = link.getBoundingClientRect(), frame = contents.getBoundingClientRect();
  if (box.top < frame.top || box.bottom > frame.bottom) contents.scrollTop += box.top - frame.top - frame.height / 3;
}
let waits = false;
addEventListener("scroll", () => {
  if (!waits) { waits = true; requestAnimationFrame(() => { waits = false; follow(); }); }
}, { passive: true });
follow();

const asked = new URLSearchParams(location.search).get("q");
if (asked) { search.value = asked; show(); }
