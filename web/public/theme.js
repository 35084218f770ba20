// Runs before the first paint, so that neither a selected theme nor the brand's colour flashes another one.
try {
  const theme = localStorage.getItem("portico.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's theme applies.
}
{
  const config = document.getElementById("config");
  const accent = config && JSON.parse(config.textContent).brand.accent;
  if (accent) {
    const { style } = document.documentElement;
    style.setProperty("--brand-fill", accent.fill);
    style.setProperty("--brand-on-fill", accent.onFill);
    style.setProperty("--hover-mix", accent.onFill === "#000000" ? "white" : "black");
    style.setProperty("--brand-accent", `light-dark(${accent.light}, ${accent.dark})`);
  }
}
