// Runs inside a page under test and sends what it finds, as JSON, to the page that frames it.
addEventListener('load', () => {
  const problems = window.foundErrors.slice();
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const name = e => e.tagName.toLowerCase() + (e.className.baseVal === undefined && e.className ? '.' + e.className.split(' ')[0] : '') + ' "' + e.textContent.trim().slice(0, 40) + '"';
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) problems.push('the page is ' + document.documentElement.scrollWidth + ' px wide, the window ' + width);
  const scrolls = e => e.closest('.wide, .mesh, pre');
  for (const e of all('main *')) {
    const box = e.getBoundingClientRect();
    if (box.width && !scrolls(e) && !e.closest('svg') && (box.right > width + 1 || box.left < -1)) problems.push('outside of the window: ' + name(e));
  }
  // Text that must keep to one line, and texts that must not overlap.
  for (const e of all('.x, .y, .key span, .tile b, .bars > span, .lanes > span, .inplot, .chip')) {
    const line = parseFloat(getComputedStyle(e).fontSize) * 1.9;
    if (e.getBoundingClientRect().height > line + 6) problems.push('wraps: ' + name(e));
    if (e.matches('.tile b') && e.scrollWidth > e.clientWidth + 1) problems.push('clipped: ' + name(e));
  }
  for (const plot of all('.plot, .scale'))
    for (const kind of ['.x', '.y']) {
      const boxes = all(kind, plot).map(e => [e, e.getBoundingClientRect()]);
      boxes.forEach(([e, a], i) => boxes.slice(i + 1).forEach(([f, b]) => {
        if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) problems.push('overlap: ' + name(e) + ' and ' + name(f));
      }));
    }
  for (const figure of all('figure')) {
    const box = figure.getBoundingClientRect();
    if (box.width < 100 || box.height < 40) problems.push('empty figure: ' + figure.className);
    const paths = all('path', figure);
    if (!figure.matches('.meshes') && !paths.some(p => p.getAttribute('d'))) problems.push('a figure without a drawing: ' + figure.className);
    for (const p of paths) if (/nan|inf/i.test(p.getAttribute('d'))) problems.push('a path with ' + p.getAttribute('d').slice(0, 40));
  }
  // Pointers: every chart, timeline and mesh answers.
  for (const target of all('.plot, .lane, .mesh td')) {
    const box = target.getBoundingClientRect();
    for (const part of [0.02, 0.5, 0.98])
      target.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + part * box.width, clientY: box.top + box.height / 2, bubbles: true}));
  }
  const tip = document.getElementById('tip');
  if (all('.mesh td').length && tip.hidden) problems.push('no tip on a mesh');
  all('.pick button').forEach(b => b.click());
  const light = c => { const [r, g, b] = c.match(/\d+/g).map(Number); return (r + g + b) / 765; };
  problems.push(...window.foundErrors);
  parent.postMessage(JSON.stringify({
    problems: [...new Set(problems)], width: innerWidth, requests: performance.getEntriesByType('resource').map(e => e.name),
    titles: all('h2').map(e => e.textContent), figures: all('figure').map(e => e.className),
    paper: light(getComputedStyle(document.body).backgroundColor), ink: light(getComputedStyle(document.body).color)}), '*');
});
