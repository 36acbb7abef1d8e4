// Boxes that scroll sideways, and show at which edge there is more: style.css draws it.

export function watch(box) {
  const tell = () => {
    const right = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", right > 1);
  };
  box.addEventListener("scroll", tell, { passive: true });
  new ResizeObserver(tell).observe(box);
  new MutationObserver(tell).observe(box, { childList: true, subtree: true });
}
