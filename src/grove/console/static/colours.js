// One hue a set, a shade a gang. The hues can be told apart by people who see few of them (Okabe and Ito's palette).

const HUES = [
  [0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0], [180, 170, 40], [120, 120, 200],
];

export const dark = () => document.documentElement.dataset.theme === "dark"
  || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);

export function theme() {
  const night = dark();
  return {
    ground: night ? "#12161a" : "#f4f5f7", line: night ? "#3a434d" : "#c3c9d0", text: night ? "#e6e9ec" : "#1c2126",
    dim: night ? "#9aa5b1" : "#56616c", free: night ? "#2a323a" : "#ffffff", broken: night ? "#ff6b6b" : "#b3261e",
    other: night ? "#7d8894" : "#8a949e", planned: night ? "#ffd24d" : "#8a5a00", chosen: night ? "#ffffff" : "#000000",
  };
}

let order = [];

// Sets get their hues in the order of their names, so that neighbours in a list differ.
export function colourSets(names) {
  order = [...new Set(names)].sort();
}

const shades = new Map();

export function colourOf(set, gang) {
  const index = order.indexOf(set);
  if (index < 0) return theme().other;
  const key = `${index} ${gang} ${dark()}`;
  if (shades.has(key)) return shades.get(key);
  const [r, g, b] = HUES[index % HUES.length];
  const numbers = (gang.slice(set.length).match(/\d+/g) ?? ["0"]).map(Number);
  const step = numbers.reduce((sum, one) => sum * 3 + one, 0) % 5;
  const towards = dark() ? 255 : 0;
  const share = step * 0.11;
  const mix = (one) => Math.round(one + (towards - one) * share);
  const colour = `rgb(${mix(r)} ${mix(g)} ${mix(b)})`;
  if (shades.size > 5000) shades.clear();
  shades.set(key, colour);
  return colour;
}
