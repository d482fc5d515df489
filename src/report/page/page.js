// Hovering and tapping: values under the pointer in charts and timelines, groups of ranks in meshes. Everything is
// readable without it.
(() => {
  const tip = document.getElementById('tip');
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const data = new Map();
  const of = element => {
    if (!data.has(element)) data.set(element, JSON.parse(element.querySelector('script').textContent));
    return data.get(element);
  };
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + 'px';
    tip.style.top = Math.max(4, y - box.height - 12) + 'px';
  };
  const number = v => v === null ? '-' : Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString('en-US') : String(+v.toPrecision(5));
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle; else high = middle;
    }
    return x - xs[low] <= xs[high] - x ? low : high;
  };
  const charts = all('figure.chart');
  // All charts over steps share one cursor.
  const move = (from, event) => {
    const box = from.querySelector('.plot').getBoundingClientRect();
    const chart = of(from);
    if (!chart.series.length) return;
    const part = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    const x = chart.from + part * (chart.to - chart.from);
    const lines = [];
    let at = x;
    chart.series.forEach((s, i) => {
      if (!s.x.length) return;
      const k = nearest(s.x, x);
      if (i === 0) at = s.x[k];
      if (i === 0 || Math.abs(s.x[k] - x) <= (chart.to - chart.from) * 0.03) lines.push(s.name + (s.x[k] === at ? '' : ' (' + number(s.x[k]) + ')') + ': ' + number(s.y[k]));
    });
    show(chart.x + ' ' + number(at) + '\n' + lines.join('\n'), event.clientX, event.clientY);
    charts.filter(c => of(c).x === chart.x).forEach(c => {
      const own = of(c), cursor = c.querySelector('.cursor');
      cursor.hidden = at < own.from || at > own.to;
      cursor.style.left = 100 * (at - own.from) / (own.to - own.from) + '%';
    });
  };
  const leave = () => {
    tip.hidden = true;
    all('.cursor').forEach(c => { c.hidden = true; });
  };
  charts.forEach(c => {
    const plot = c.querySelector('.plot');
    plot.addEventListener('pointermove', e => move(c, e));
    plot.addEventListener('pointerdown', e => move(c, e));
    plot.addEventListener('pointerleave', leave);
  });
  const time = s => s >= 1 ? s.toPrecision(4) + ' s' : s >= 1e-3 ? (s * 1e3).toPrecision(4) + ' ms' : (s * 1e6).toPrecision(4) + ' us';
  all('figure.timeline').forEach(figure => {
    const t = of(figure);
    const look = (lane, event) => {
      const box = lane.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * t.seconds, slack = 2 * t.seconds / box.width;
      const spans = t.lanes[+lane.dataset.lane];
      const hit = spans.find(s => at >= s[0] && at <= s[0] + s[1]) || spans.find(s => at >= s[0] - slack && at <= s[0] + s[1] + slack);
      if (!hit) return leave();
      show(t.names[hit[2]] + (hit[3] >= 0 ? ', micro-batch ' + hit[3] : '') + '\n' + time(hit[1]) + ', from ' + time(hit[0]), event.clientX, event.clientY);
    };
    all('.lane', figure).forEach(lane => {
      lane.addEventListener('pointermove', e => look(lane, e));
      lane.addEventListener('pointerdown', e => look(lane, e));
      lane.addEventListener('pointerleave', leave);
    });
  });
  all('.track i[data-tip]').forEach(part => {
    const look = e => show(part.dataset.tip, e.clientX, e.clientY);
    part.addEventListener('pointermove', look);
    part.addEventListener('pointerdown', look);
    part.addEventListener('pointerleave', leave);
  });
  // Ranks of one group along the chosen axis have one colour.
  all('figure.meshes').forEach(figure => {
    const mesh = of(figure), cells = all('td[data-rank]', figure), buttons = all('button', figure);
    const coordinates = rank => {
      const at = [];
      for (let a = mesh.axes.length - 1; a >= 0; --a) {
        at[a] = rank % mesh.axes[a].size;
        rank = Math.floor(rank / mesh.axes[a].size);
      }
      return at;
    };
    const paint = axis => {
      buttons.forEach((b, i) => b.setAttribute('aria-pressed', i === axis));
      const groups = new Map();
      cells.forEach(cell => {
        const key = coordinates(+cell.dataset.rank).filter((_, i) => i !== axis).join();
        if (!groups.has(key)) groups.set(key, groups.size);
        cell.style.background = 'var(--m' + groups.get(key) % 8 + ')';
      });
    };
    buttons.forEach((b, i) => b.addEventListener('click', () => paint(i)));
    const look = (cell, e) => show('rank ' + cell.dataset.rank + '\n' +
      coordinates(+cell.dataset.rank).map((c, i) => mesh.axes[i].axis + ' ' + c).join('\n'), e.clientX, e.clientY);
    cells.forEach(cell => {
      cell.addEventListener('pointermove', e => look(cell, e));
      cell.addEventListener('pointerdown', e => look(cell, e));
      cell.addEventListener('pointerleave', leave);
    });
    if (buttons.length) paint(buttons.length - 1);
  });
})();
