// Draws the three charts of the page. Its data stand in the page; nothing is loaded.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const redraws = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function seconds(value) {
    for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
      if (value >= scale * 0.9995) return digits(value / scale) + " " + unit;
    }
    return Math.round(value * 1e9) + " ns";
  }

  function digits(value) {
    return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
  }

  // Powers of ten between two values, with halves and fifths where there are few.
  function ticks(low, high) {
    const decades = Math.log10(high / low);
    const steps = decades > 3 ? [1] : decades > 0.8 ? [1, 2, 5] : decades > 0.3 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9];
    const out = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const s of steps) {
        const value = s * Math.pow(10, e);
        if (value >= low * 0.999 && value <= high * 1.001) out.push(value);
      }
    }
    return out;
  }

  // A canvas as wide as its box, or as wide as it needs; `paint` gets the context and the size in CSS pixels.
  function canvas(name, height, least, paint) {
    const box = document.getElementById(name);
    if (!box) return null;
    const element = box.querySelector("canvas");
    const draw = () => {
      const width = Math.max(least, box.clientWidth);
      const scale = window.devicePixelRatio || 1;
      element.width = Math.round(width * scale);
      element.height = Math.round(height * scale);
      element.style.width = width + "px";
      element.style.height = height + "px";
      const context = element.getContext("2d");
      context.scale(scale, scale);
      context.font = "12px system-ui, sans-serif";
      context.lineJoin = "round";
      paint(context, width, height);
    };
    redraws.push(draw);
    let last = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth !== last) { last = box.clientWidth; draw(); }
    }).observe(box);
    draw();
    return { box, element, draw, said: box.parentElement.querySelector(".chosen") };
  }

  function text(c, words, x, y, align, fill) {
    c.fillStyle = fill || colour("soft");
    c.textAlign = align || "left";
    c.fillText(words, x, y);
  }

  // Text that is cut where there is no room for it.
  function fitting(c, words, room) {
    if (c.measureText(words).width <= room) return words;
    let n = words.length;
    while (n > 1 && c.measureText(words.slice(0, n) + "…").width > room) n--;
    return words.slice(0, n) + "…";
  }

  function segment(c, x, y, x1, y1) {
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x1, y1);
    c.stroke();
  }

  const trials = [];
  data.sides.forEach((side, s) => {
    side.seconds.forEach((time, n) => trials.push({ side: s, number: n, time, status: data.statuses[side.status[n]],
      machine: side.machines ? side.machines[n] : "" }));
  });
  const several = data.sides.length > 1;
  const longest = Math.max(1, ...data.sides.map((s) => s.seconds.length));
  const times = trials.filter((t) => t.time !== null).map((t) => t.time).sort((a, b) => a - b);
  const SIDES = ["first", "second"];

  function told(t) {
    const who = several ? data.sides[t.side].label + ", " : "";
    const what = (t.time === null ? t.status : seconds(t.time)) + (t.machine ? " on " + t.machine : "");
    const first = t.side ? data.sides.slice(0, t.side).reduce((n, s) => n + s.seconds.length, 0) : 0;
    const values = data.draws.map((d) => [d.name, d.of[first + t.number] < 0 ? null : d.values[d.of[first + t.number]]]);
    const drawn = values.filter(([, v]) => v !== null).map(([n, v]) => n + " = " + v).join(", ");
    return who + "trial " + (t.number + 1) + ": " + what + (drawn ? "; " + drawn : "");
  }

  progress();
  roofline();
  parallel();
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => redraws.forEach((draw) => draw()));

  function progress() {
    let chosen = -1;
    const failed = trials.some((t) => t.time === null);
    const low = times.length ? times[0] / 1.06 : 1;
    const most = times.length ? times[Math.floor(0.98 * (times.length - 1))] : 2;
    const high = Math.max(low * 1.2, Math.min(most * 1.1, low * 12));
    let place = () => [0, 0];
    const drawn = canvas("progress-chart", 340, 0, (c, width, height) => {
      const left = 58, right = width - 12, top = several ? 30 : 12, bottom = height - (failed ? 62 : 40);
      const x = (n) => left + ((n + 0.5) / longest) * (right - left);
      const y = (t) => bottom - (Math.log(Math.min(t, high) / low) / Math.log(high / low)) * (bottom - top);
      place = (t) => [x(t.number), t.time === null ? bottom + 20 : y(t.time)];
      c.strokeStyle = colour("rule");
      c.lineWidth = 1;
      for (const t of ticks(low, high)) {
        segment(c, left, y(t), right, y(t));
        text(c, seconds(t), left - 6, y(t) + 4, "right");
      }
      const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000].find((s) => longest / s <= width / 90) || longest;
      for (let n = step; n <= longest; n += step) text(c, String(n), x(n - 1), height - 20, "center");
      text(c, "trial", right, height - 4, "right");
      if (failed) text(c, "failed", left - 6, bottom + 24, "right", colour("bad"));
      const size = longest > 2000 ? 1.6 : longest > 400 ? 2.2 : 3.2;
      c.globalAlpha = longest > 2000 ? 0.5 : 0.75;
      for (const t of trials) {
        const [px, py] = place(t);
        if (t.time === null) {
          c.strokeStyle = colour("bad");
          c.lineWidth = 1.5;
          segment(c, px - size, py - size, px + size, py + size);
          segment(c, px - size, py + size, px + size, py - size);
          continue;
        }
        c.fillStyle = colour(SIDES[t.side]);
        c.beginPath();
        if (t.time > high) { c.moveTo(px - size, py + size); c.lineTo(px + size, py + size); c.lineTo(px, py - size); c.fill(); }
        else if (t.side === 0) { c.arc(px, py, size, 0, 7); c.fill(); }
        else c.fillRect(px - size, py - size, 2 * size, 2 * size);
      }
      c.globalAlpha = 1;
      data.sides.forEach((side, s) => {
        c.strokeStyle = several ? colour(SIDES[s]) : colour("fast");
        c.lineWidth = 2.5;
        c.setLineDash(s ? [7, 4] : []);
        c.beginPath();
        let best = Infinity;
        side.seconds.forEach((t, n) => {
          if (t === null || t >= best) return;
          if (best === Infinity) c.moveTo(x(n), y(t));
          else { c.lineTo(x(n), y(best)); c.lineTo(x(n), y(t)); }
          best = t;
        });
        if (best < Infinity) c.lineTo(x(side.seconds.length - 1), y(best));
        c.stroke();
        c.setLineDash([]);
        if (several) {
          const at = left + s * Math.min(260, (right - left) / 2);
          c.fillStyle = colour(SIDES[s]);
          if (s) c.fillRect(at, 8, 9, 9); else { c.beginPath(); c.arc(at + 5, 12, 5, 0, 7); c.fill(); }
          text(c, fitting(c, side.label, (right - left) / 2 - 24), at + 16, 17, "left", colour("text"));
        }
      });
      if (trials[chosen]) {
        const [px, py] = place(trials[chosen]);
        c.strokeStyle = colour("text");
        c.lineWidth = 2;
        c.beginPath();
        c.arc(px, py, 7, 0, 7);
        c.stroke();
      }
    });
    if (!drawn) return;
    const choose = (n) => {
      if (n === chosen || !trials.length) return;
      chosen = Math.min(trials.length - 1, Math.max(0, n));
      drawn.said.textContent = told(trials[chosen]);
      drawn.draw();
    };
    keys(drawn.box, () => chosen, choose, trials.length);
    drawn.element.addEventListener("pointermove", (e) => {
      let best = -1, near = 400;
      trials.forEach((t, n) => {
        const [px, py] = place(t);
        const away = (px - e.offsetX) ** 2 + (py - e.offsetY) ** 2;
        if (away < near) { near = away; best = n; }
      });
      if (best >= 0) choose(best);
    });
  }

  function keys(box, chosen, choose, count) {
    box.addEventListener("keydown", (e) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
      if (e.key in steps) choose(chosen() + steps[e.key]);
      else if (e.key === "Home") choose(0);
      else if (e.key === "End") choose(count - 1);
      else return;
      e.preventDefault();
    });
  }

  function roofline() {
    const roof = data.roof;
    const drawn = roof && canvas("roofline-chart", 300, 0, (c, width, height) => {
      const left = 64, right = width - 12, top = 20, bottom = height - 44;
      const ridge = roof.peak && roof.bandwidth ? roof.peak / roof.bandwidth : roof.intensity;
      const xs = [Math.min(ridge, roof.intensity) / 6, Math.max(ridge, roof.intensity) * 6];
      const limit = (i) => Math.min(roof.peak || Infinity, roof.bandwidth ? roof.bandwidth * i : Infinity);
      const ys = [Math.min(limit(xs[0]), ...roof.points.map((p) => p.rate)) / 1.5, Math.max(limit(xs[1]), ...roof.points.map((p) => p.rate)) * 1.6];
      const x = (i) => left + (Math.log(i / xs[0]) / Math.log(xs[1] / xs[0])) * (right - left);
      const y = (r) => bottom - (Math.log(r / ys[0]) / Math.log(ys[1] / ys[0])) * (bottom - top);
      c.lineWidth = 1;
      c.strokeStyle = colour("rule");
      for (const t of ticks(ys[0], ys[1])) {
        segment(c, left, y(t), right, y(t));
        text(c, String(+(t / 1e9).toPrecision(3)), left - 6, y(t) + 4, "right");
      }
      let end = -Infinity;
      for (const t of ticks(xs[0], xs[1])) {
        const words = String(+t.toPrecision(3)), half = c.measureText(words).width / 2;
        if (x(t) - half < end + 6) continue;
        text(c, words, x(t), bottom + 16, "center");
        end = x(t) + half;
      }
      text(c, "G" + roof.unit + "/s", 4, 12, "left");
      text(c, roof.unit + " per byte", right, height - 8, "right");
      c.strokeStyle = colour("text");
      c.lineWidth = 2.5;
      c.beginPath();
      c.moveTo(x(xs[0]), y(limit(xs[0])));
      if (ridge > xs[0] && ridge < xs[1]) c.lineTo(x(ridge), y(limit(ridge)));
      c.lineTo(x(xs[1]), y(limit(xs[1])));
      c.stroke();
      if (roof.peak) text(c, roof.title + ", " + digits(roof.peak / 1e9) + " G" + roof.unit + "/s", right, y(limit(xs[1])) - 7, "right", colour("text"));
      if (roof.bandwidth) {
        const corner = roof.peak && ridge > xs[0] && ridge < xs[1] ? ridge : xs[1];
        c.save();
        c.translate(x(xs[0]), y(limit(xs[0])));
        c.rotate(Math.atan2(y(limit(corner)) - y(limit(xs[0])), x(corner) - x(xs[0])));
        text(c, digits(roof.bandwidth / 1e9) + " GB/s", 8, -7, "left", colour("text"));
        c.restore();
      }
      c.setLineDash([3, 4]);
      c.lineWidth = 1;
      c.strokeStyle = colour("soft");
      segment(c, x(roof.intensity), top, x(roof.intensity), bottom);
      c.setLineDash([]);
      // Where the roof is at a height, if it slopes there.
      const slope = (at) => {
        const rate = ys[0] * (ys[1] / ys[0]) ** ((bottom - at) / (bottom - top));
        return roof.bandwidth && rate < (roof.peak || Infinity) ? Math.max(left, x(rate / roof.bandwidth) + 6) : left;
      };
      let last = -Infinity;
      [...roof.points].sort((a, b) => a.rate - b.rate).reverse().forEach((p) => {
        const n = roof.points.indexOf(p), px = x(roof.intensity), py = y(p.rate);
        c.fillStyle = colour(p.label.startsWith("best") ? SIDES[Math.min(n, 1)] : "prior");
        c.beginPath();
        c.arc(px, py, 5.5, 0, 7);
        c.fill();
        // Labels stand to the side that has more room, not on each other, and below the roof rather than across it; where
        // there is too little room for the numbers, they are only below the figure.
        const across = Math.abs(py - y(limit(roof.intensity))) < 12;
        const at = Math.max(py + (across ? 19 : 4), last + 15);
        last = at;
        const onLeft = px > (left + right) / 2;
        const room = (onLeft ? px - slope(at - 12) : right - px) - 14;
        const whole = p.label + ": " + digits(p.rate / 1e9) + " G" + roof.unit + "/s, " + p.time;
        const words = c.measureText(whole).width <= room ? whole : fitting(c, p.label, room);
        label(c, words, onLeft ? px - 11 - c.measureText(words).width : px + 11, at);
      });
    });
    if (!drawn) return;
    drawn.said.textContent = roof.points.map((p) => p.label + ": " + digits(p.rate / 1e9) + " G" + roof.unit + "/s in " + p.time).join("; ");
  }

  function parallel() {
    const slider = document.getElementById("share");
    if (!slider) return;
    const order = trials.map((t, n) => n).filter((n) => trials[n].time !== null).sort((a, b) => trials[b].time - trials[a].time);
    const low = times.length ? times[0] : 1, high = times.length ? Math.max(times[times.length - 1], low * 1.01) : 2;
    let chosen = -1;
    const columns = data.draws.length + 1;
    const drawn = canvas("parallel-chart", 380, Math.max(360, columns * 78), (c, width, height) => {
      const left = 40, right = width - 74, top = 34, bottom = height - 40;
      const x = (k) => left + (columns > 1 ? (k / (columns - 1)) * (right - left) : 0);
      // The lowest place of an axis is that of schedules without the draw, if there are any.
      const at = data.draws.map((d) => {
        const missing = d.of.includes(-1) ? 1 : 0;
        const places = Math.max(1, d.values.length - 1 + missing);
        return (v) => bottom - ((v + missing) / places) * (bottom - top);
      });
      const timed = (t) => top + (Math.log(t / low) / Math.log(high / low)) * (bottom - top);
      const line = (n) => {
        c.beginPath();
        data.draws.forEach((d, k) => (k ? c.lineTo(x(k), at[k](d.of[n])) : c.moveTo(x(k), at[k](d.of[n]))));
        c.lineTo(x(columns - 1), timed(trials[n].time));
        c.stroke();
      };
      const few = Math.max(1, Math.round((order.length * slider.value) / 100));
      c.lineWidth = 1;
      c.strokeStyle = colour("prior");
      c.globalAlpha = Math.min(0.5, 40 / Math.max(1, order.length)) + 0.03;
      order.slice(0, order.length - few).forEach(line);
      c.strokeStyle = colour("fast");
      c.globalAlpha = Math.min(0.9, 12 / few + 0.12);
      c.lineWidth = 1.4;
      order.slice(order.length - few).forEach(line);
      c.globalAlpha = 1;
      if (chosen >= 0 && order.length) {
        c.lineWidth = 3;
        c.strokeStyle = colour("text");
        line(order[order.length - 1 - chosen]);
      }
      const room = (right - left) / Math.max(1, columns - 1) - 8;
      for (let k = 0; k < columns; k++) {
        c.strokeStyle = colour("soft");
        c.lineWidth = 1;
        segment(c, x(k), top, x(k), bottom);
        const name = k < columns - 1 ? data.draws[k].name : "time";
        text(c, fitting(c, name, k ? room + 6 : room), k ? x(k) : Math.max(4, x(k) - 30), 16, k ? "center" : "left", colour("text"));
      }
      data.draws.forEach((d, k) => {
        const every = Math.max(1, Math.ceil(d.values.length / 12));
        const labels = d.values.map((v, n) => [v, n]).filter(([, n]) => n % every === 0);
        if (d.of.includes(-1)) labels.push(["not drawn", -1]);
        for (const [v, n] of labels) label(c, fitting(c, v, room), x(k) + 4, at[k](n) + 4);
      });
      for (const t of ticks(low, high)) label(c, seconds(t), x(columns - 1) + 4, timed(t) + 4);
      text(c, "fast", x(columns - 1), top - 4, "center");
      text(c, "slow", x(columns - 1), bottom + 16, "center");
    });
    if (!drawn) return;
    const update = () => {
      document.getElementById("share-of").textContent = slider.value + " %";
      drawn.draw();
    };
    slider.addEventListener("input", update);
    const choose = (n) => {
      if (!order.length) return;
      chosen = Math.min(order.length - 1, Math.max(0, n));
      drawn.said.textContent = "number " + (chosen + 1) + " by time: " + told(trials[order[order.length - 1 - chosen]]);
      drawn.draw();
    };
    keys(drawn.box, () => chosen, choose, order.length);
  }

  // Text on a ground that keeps it readable above lines.
  function label(c, words, x, y) {
    const width = c.measureText(words).width;
    c.globalAlpha = 0.82;
    c.fillStyle = colour("card");
    c.fillRect(x - 2, y - 11, width + 4, 14);
    c.globalAlpha = 1;
    text(c, words, x, y, "left", colour("text"));
  }
})();
