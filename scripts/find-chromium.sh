# Status 0 where the browser tests will find a Chromium: $CHROMIUM, one on the PATH, or Playwright's own download.
[ -n "$CHROMIUM" ] && [ -x "$CHROMIUM" ] && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  # Ubuntu's chromium-browser may be a stub that only asks for snap: it has to answer.
  command -v "$name" >/dev/null 2>&1 && "$name" --version >/dev/null 2>&1 && exit 0
done
for cache in "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}" "$HOME/Library/Caches/ms-playwright"; do
  for folder in "$cache"/chromium-*; do [ -d "$folder" ] && exit 0; done
done
exit 1
