// Opens a page in a headless browser, and prints its errors, its requests, and overlapping or protruding texts as JSON.
// node look.mjs FOLDER-OF-THE-BROWSER PAGE WIDTH light|dark PICTURE

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, page, width, scheme, picture] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/package.json`));
const { chromium } = require("playwright-core");
const { default: packed } = await import(pathToFileURL(require.resolve("@sparticuz/chromium")));

const address = pathToFileURL(page).href;
// On a busy machine each step may take longer than the 30 seconds of Playwright. The caller ends a browser that hangs.
const forever = { timeout: 0 };
const executablePath = `${folder}/unpacked/chromium`;
// The package is made for Lambda. Chromium does not support its `--single-process`, and hung once on a busy machine.
const args = packed.args.filter((each) => each !== "--single-process");
const browser = await chromium.launch({ executablePath, args, headless: true, ...forever });
const context = await browser.newContext({ viewport: { width: Number(width), height: 900 }, colorScheme: scheme });
context.setDefaultTimeout(forever.timeout);
const opened = await context.newPage();
const said = [];
const requests = [];
opened.on("console", (message) => said.push(message.text()));
opened.on("pageerror", (error) => said.push(String(error)));
opened.on("request", (request) => requests.push(request.url()));
await opened.goto(address);
const seen = await opened.evaluate(measure);
await opened.screenshot({ path: picture, fullPage: true });
await browser.close();
console.log(JSON.stringify({ ...seen, said, requests: requests.filter((url) => url !== address) }));

// In the page, with everything unfolded: each piece of text with its position, and the texts that cover each other.
function measure() {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim();
    const element = node.parentElement;
    if (!text || element.closest("svg, title")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, top, right, bottom } of range.getClientRects()) {
      if (right > left && bottom > top) texts.push({ text, left, top, right, bottom, scrolls: !!element.closest(".scroll") });
    }
  }
  const covers = (a, b) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return across > 1 && down > Math.min(a.bottom - a.top, b.bottom - b.top) / 3;
  };
  const overlapping = [];
  texts.forEach((one, index) => {
    for (const other of texts.slice(index + 1)) if (covers(one, other)) overlapping.push([one.text, other.text]);
  });
  const bars = [...document.querySelectorAll(".bars span")].map((bar) => {
    const { width, height } = bar.getBoundingClientRect();
    const colour = getComputedStyle(bar).backgroundColor;
    return { stage: bar.className, width, height, colour };
  });
  return {
    title: document.title,
    text: document.body.innerText,
    headings: [...document.querySelectorAll("h1, h2, h3")].map((heading) => heading.innerText),
    captions: [...document.querySelectorAll("caption")].map((caption) => caption.innerText),
    pictures: [...document.querySelectorAll("[role=img]")].map((picture) => picture.getAttribute("aria-label")),
    broken_links: [...document.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((to) => !document.querySelector(to)),
    bars,
    overlapping,
    sticks_out: texts.filter((each) => !each.scrolls && each.right > innerWidth + 1).map((each) => each.text),
    cut: texts.filter((each) => each.right > innerWidth + 1).map((each) => each.text),
    wider_than_the_screen: document.documentElement.scrollWidth > innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
  };
}
