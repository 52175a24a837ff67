// Before anything is drawn, so that nothing flashes: the theme that was chosen, if one was.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("tidewheel-theme");
  } catch {
    // Storage may be forbidden; then the system's theme it is.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
